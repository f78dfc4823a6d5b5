#!/usr/bin/env bash
# Builds and runs the C++ tests, without Python: native/tests/run.sh [address,undefined | thread]
# CXX: the compiler (g++). RUN: what runs the tests, an emulator for instance. TESTS: which (test_*).
set -euo pipefail
cd "$(dirname "$0")/.."
build=$(mktemp -d)
trap 'rm -rf "$build"' EXIT
flags=(-std=c++17 -O2 -g -ffp-contract=off -Wall -Wextra -Werror -pthread)
if [ $# -gt 0 ]; then
    flags+=(-O1 -fno-omit-frame-pointer "-fsanitize=$1" -fno-sanitize-recover=all)
fi
for source in kernels/*.cpp index/*.cpp memory/*.cpp; do
    "${CXX:-g++}" "${flags[@]}" -c "$source" -o "$build/${source//\//_}.o"
done
for test in tests/${TESTS:-test_*}.cpp; do
    "${CXX:-g++}" "${flags[@]}" "$test" "$build"/*.o -ldl -o "$build/test"
    ${RUN:-} "$build/test"
    echo "passed: $test"
done
