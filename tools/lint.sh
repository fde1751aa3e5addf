#!/bin/sh
# Checks the layout of every source with clang-format, and runs clang-tidy. A file that includes torch takes clang-tidy half
# a minute, so by default it reads the rooms without tensors and those other files that differ from the last commit;
# LINT_ALL=1 reads all. `--format` lays the sources out instead; `--layout` checks only the layout.
set -eu
cd "$(dirname "$0")/.."

sources=$(git ls-files --cached --others --exclude-standard -- '*.h' '*.cpp')

if [ "${1:-}" = "--format" ]; then
  echo "$sources" | xargs clang-format -i
  exit 0
fi

echo "lint: clang-format, $(echo "$sources" | wc -l) files"
if ! echo "$sources" | xargs clang-format --dry-run -Werror 2>/dev/null; then
  for source in $sources; do
    clang-format --dry-run -Werror "$source" 2>/dev/null || echo "$source"
  done >&2
  echo "lint: these files are not laid out as .clang-format says; 'make format' does it" >&2
  exit 1
fi
[ "${1:-}" = "--layout" ] && exit 0

units=$(echo "$sources" | grep -E '^(kullback|cli|bench)/.*\.cpp$')
if [ "${LINT_ALL:-0}" != 1 ]; then
  torch_free=$(echo "$units" | grep -E '^kullback/(base|text|io|report)/' || true)
  changed=$(git status --porcelain -- kullback cli bench | sed 's/^...//' | grep '\.cpp$' || true)
  units=$(printf '%s\n%s\n' "$torch_free" "$changed" | grep . | sort -u)
fi
echo "lint: clang-tidy, $(echo "$units" | wc -l) files"
cmake --log-level=WARNING --preset lint >/dev/null
# One process a file: clang-tidy's memory does not grow, and a fault is printed with its file.
echo "$units" | xargs -P "$(nproc)" -n 1 clang-tidy --quiet -p build-lint 2>/dev/null
