#!/bin/sh
# valgrind.sh TEST_PROGRAM: the tests of the row kernels under Valgrind's memory checker, in one thread. It runs AVX2, not
# AVX-512: the kernels see that and take it. Leaks are AddressSanitizer's to find (`make asan`).
set -eu
command -v valgrind >/dev/null || { echo "valgrind: it is not installed (Debian package valgrind)" >&2; exit 2; }
tests='*EachGenerator.Kernels*:*EachGenerator.Zeros*:*EachDivergence.MinusInfinity*'
tests="$tests:Head.Stat*:Head.Nan*:Head.Ties*:Head.NoTokens*:UnequalVocabularies.Every*"
OMP_NUM_THREADS=1 exec valgrind --quiet --error-exitcode=9 --leak-check=no --suppressions="$(dirname "$0")/valgrind.supp" "$1" --gtest_brief=1 --gtest_filter="$tests"
