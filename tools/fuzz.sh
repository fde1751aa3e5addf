#!/bin/sh
# Builds the fuzzers and runs each for so many seconds (20): no crash, no leak, no hang over 10 s, no allocation over 512 MB.
# What they learn stays in build-fuzz/corpus; what breaks them is written there too, and named.
set -eu
cd "$(dirname "$0")/.."
seconds=${1:-20}

cmake --log-level=WARNING --preset fuzz >/dev/null
cmake --build --preset fuzz -j "$(nproc)"
count=0
for source in kullback/*/*_fuzz.cpp; do
  [ -e "$source" ] || continue
  name=$(basename "$source" .cpp)
  corpus=build-fuzz/corpus/$name
  mkdir -p "$corpus"
  seeds=$([ ! -d "fixtures/fuzz/$name" ] || echo "fixtures/fuzz/$name")
  echo "fuzz: $name for $seconds s"
  if ! build-fuzz/"$name" -max_total_time="$seconds" -timeout=10 -malloc_limit_mb=512 -rss_limit_mb=2048 -max_len=65536 \
      -verbosity=0 -print_final_stats=0 -artifact_prefix="$corpus/../$name-" "$corpus" $seeds >build-fuzz/"$name".log 2>&1; then
    tail -n 40 build-fuzz/"$name".log >&2
    echo "fuzz: $name found a fault; the input is in build-fuzz/corpus" >&2
    exit 1
  fi
  count=$((count + 1))
done
[ "$count" -gt 0 ] || { echo "fuzz: there is no kullback/*/*_fuzz.cpp" >&2; exit 1; }
echo "fuzz: $count fuzzers found no fault"
