#!/bin/sh
# Installs the Debian (12 or newer) or Ubuntu packages that building, testing and checking Kullback takes: only those that
# are missing, so that it costs nothing when all are there, and those that are named on the command line. LibTorch is none
# of them: tools/fetch_libtorch.py gets it.
set -eu

compiler="g++ cmake ninja-build ccache mold pkg-config"
libraries="nlohmann-json3-dev libcli11-dev libfmt-dev libspdlog-dev libtomlplusplus-dev libpcre2-dev libutf8proc-dev libhwy-dev libgloo-dev libjemalloc-dev zlib1g-dev"
tests="libgtest-dev libgmock-dev libbenchmark-dev"
documentation="doxygen"
checkers="clang libclang-rt-dev clang-format clang-tidy"
fetching="git ca-certificates python3 python3-pip python3-venv"
packages="$compiler $libraries $tests $checkers $documentation $fetching $*"

if ! command -v apt-get >/dev/null; then
  echo "deps: there is no apt-get here; Kullback needs what these Debian packages hold: $packages" >&2
  exit 0  # CMake says which of them it misses
fi

# shellcheck disable=SC2086 # the packages are words
installed=" $(dpkg-query -W -f '${db:Status-Status} ${Package} ' $packages 2>/dev/null || true)"
missing=""
for package in $packages; do
  case "$installed" in
    *" installed $package "*) ;;
    *) missing="$missing $package" ;;
  esac
done
[ -n "$missing" ] || exit 0

as_root=""
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null || { echo "deps: not root, and there is no sudo; have these packages installed:$missing" >&2; exit 2; }
  as_root="sudo"
fi

echo "deps: installing$missing"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
# shellcheck disable=SC2086
if ! { $as_root apt-get update -qq &&
       $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing; } >"$log" 2>&1; then
  tail -n 20 "$log" >&2
  echo "deps: apt-get could not install them; its last lines are above" >&2
  exit 2
fi
