#!/bin/sh
# Builds the documentation into site/: the pages of docs/, and those that the program writes of its own commands and methods
# from the declarations that serve its options, so that they cannot be out of date. MkDocs lives in the cache folder.
set -eu
cd "$(dirname "$0")/.."

cache=${KULLBACK_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/kullback}
tools=$cache/docs-tools-1
if [ ! -x "$tools/bin/mkdocs" ]; then
  echo "docs: installing MkDocs into $tools"
  rm -rf "$tools.partial"
  python3 -m venv "$tools.partial" && "$tools.partial/bin/python" -m pip install --quiet --disable-pip-version-check mkdocs==1.6.1 || {
    echo "docs: MkDocs cannot be installed; is the network there, and python3-venv installed ('make deps')?" >&2
    exit 2
  }
  rm -rf "$tools"
  mv "$tools.partial" "$tools"
fi

pages=build/docs
rm -rf "$pages"
mkdir -p build
cp -r docs "$pages"
mkdir -p "$pages/commands" "$pages/methods"
build/kullback --help | sed -n '/^Commands:/,/^$/s/^  \([a-z-]*\) .*/\1/p' | while read -r command; do
  { echo "# kullback $command"; echo; echo '```'; build/kullback "$command" --help; echo '```'; } >"$pages/commands/$command.md"
done
build/kullback methods --json | python3 -c 'import json, sys; print(*(method["name"] for method in json.load(sys.stdin)), sep="\n")' |
  while read -r method; do build/kullback explain "$method" >"$pages/methods/$method.md"; done
# The claims' own tables and plots, from a run of each.
mkdir -p "$pages/claims"
{ echo "# Claims"; echo; echo "Each page is what \`kullback claim NAME\` prints: the experiment's numbers, what is asserted, and whether it holds."; echo; } >"$pages/claims/index.md"
build/kullback claim --list | sed '1,2d; s/ .*//' | while read -r claim; do
  { echo "# Claim: $claim"; echo; echo '```'; echo "\$ kullback claim $claim"; build/kullback claim "$claim" --plot "$pages/claims"; echo '```'; echo; } >"$pages/claims/$claim.md"
  echo "- [$claim]($claim.md)" >>"$pages/claims/index.md"
  for plot in "$pages/claims/$claim".svg "$pages/claims/$claim"-[0-9].svg; do
    if [ -f "$plot" ]; then echo "![${claim}]($(basename "$plot"))" >>"$pages/claims/$claim.md"; fi
  done
done
"$tools/bin/python" -m mkdocs build --quiet --strict --config-file mkdocs.yml --site-dir "$PWD/site"
echo "docs: $(find site -name '*.html' | wc -l) pages in site/index.html"
