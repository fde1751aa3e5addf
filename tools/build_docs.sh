#!/bin/sh
# Builds the documentation into site/: the pages of docs/, those that the program writes of its own commands, methods,
# divergences and claims, so that they cannot be out of date, and the C++ API by Doxygen. MkDocs lives in the cache folder.
set -eu
cd "$(dirname "$0")/.."

command -v doxygen >/dev/null || { echo "docs: doxygen is missing; 'make deps' installs it" >&2; exit 2; }
cache=${KULLBACK_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/kullback}
tools=$cache/docs-tools-2
if [ ! -x "$tools/bin/mkdocs" ]; then
  echo "docs: installing MkDocs into $tools"
  rm -rf "$tools.partial"
  python3 -m venv "$tools.partial" && "$tools.partial/bin/python" -m pip install --quiet --disable-pip-version-check mkdocs-material==9.8.2 || {
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
mkdir -p "$pages/commands" "$pages/methods" "$pages/divergences" "$pages/claims"
cp mkdocs.yml build/mkdocs.yml
nav() { printf '%s\n' "$1" >>build/mkdocs.yml; }

# The last section of the navigation is open: the claims' own tables and plots, from a run of each.
{ echo "# Claims"; echo; echo "Each page is what \`kullback claim NAME\` prints: the experiment's numbers, what is asserted, and whether it holds."; echo; } >"$pages/claims/index.md"
nav "      - Claims:"
nav "          - claims/index.md"
build/kullback claim --list | sed '1,2d; s/ .*//' | while read -r claim; do
  { echo "# Claim: $claim"; echo; echo '```'; echo "\$ kullback claim $claim"; build/kullback claim "$claim" --plot "$pages/claims"; echo '```'; echo; } >"$pages/claims/$claim.md"
  echo "- [$claim]($claim.md)" >>"$pages/claims/index.md"
  nav "          - claims/$claim.md"
  for plot in "$pages/claims/$claim".svg "$pages/claims/$claim"-[0-9].svg; do
    if [ -f "$plot" ]; then echo "![${claim}]($(basename "$plot"))" >>"$pages/claims/$claim.md"; fi
  done
done

nav "  - Methods:"
{ echo "# Methods"; echo; build/kullback methods --json | python3 -c '
import json, sys
print("| method | family | what it is |\n|---|---|---|")
for m in json.load(sys.stdin): print("| [%s](%s.md) | %s | %s |" % (m["name"], m["name"], m["family"], m["summary"]))'; } >"$pages/methods/index.md"
nav "      - methods/index.md"
build/kullback methods --json | python3 -c 'import json, sys; print(*(method["name"] for method in json.load(sys.stdin)), sep="\n")' |
  while read -r method; do
    build/kullback explain "$method" >"$pages/methods/$method.md"
    nav "      - $method: methods/$method.md"
  done

nav "  - Divergences:"
{ echo "# Divergences"; echo; build/kullback explain --divergences --json | python3 -c '
import json, sys
print("| divergence | what it is |\n|---|---|")
for d in json.load(sys.stdin): print("| [%s](%s.md) | %s |" % (d["divergence"], d["divergence"], d["what it is"].replace("|", "\\|")))'; } >"$pages/divergences/index.md"
nav "      - divergences/index.md"
build/kullback explain --divergences --json | python3 -c 'import json, sys; print(*(d["divergence"] for d in json.load(sys.stdin)), sep="\n")' |
  while read -r divergence; do
    { build/kullback explain "$divergence" --plot "$pages/divergences/$divergence.svg"; echo; echo "![Where a student lands under $divergence]($divergence.svg)"; } >"$pages/divergences/$divergence.md"
    nav "      - $divergence: divergences/$divergence.md"
  done

nav "  - Commands:"
build/kullback --help | sed -n '/^Commands:/,/^$/s/^  \([a-z-]*\) .*/\1/p' | while read -r command; do
  { echo "# kullback $command"; echo; echo '```'; build/kullback "$command" --help; echo '```'; } >"$pages/commands/$command.md"
  nav "      - $command: commands/$command.md"
done

NO_MKDOCS_2_WARNING=1 "$tools/bin/python" -m mkdocs build --quiet --strict --config-file build/mkdocs.yml --site-dir "$PWD/site"
mkdir -p site/api
doxygen tools/Doxyfile
echo "docs: $(find site -name '*.html' ! -path 'site/api/*' | wc -l) pages in site/index.html, the C++ API in site/api/index.html; for the search, serve them: python3 -m http.server -d site"
