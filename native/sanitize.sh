#!/usr/bin/env bash
# Builds the extension with a sanitizer and runs its tests: native/sanitize.sh address,undefined | thread
# In a folder of its own, so that the installed extension stays as it is.
set -euo pipefail
cd "$(dirname "$0")/.."
kind=$1
python=$(realpath -s "${PYTHON:-.venv/bin/python}")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cp -r rarecall tests native setup.py pyproject.toml README.md LICENSE "$folder"
cd "$folder"
rm -f rarecall/*.so
suffix=$("$python" -c 'import sysconfig; print(sysconfig.get_config_var("EXT_SUFFIX"))')
include=$("$python" -c 'import sysconfig; print(sysconfig.get_path("include"))')
g++ -std=c++17 -O1 -g -fno-omit-frame-pointer -ffp-contract=off -Wall -Wextra -Werror -pthread -shared -fPIC \
    -fsanitize="$kind" -fno-sanitize-recover=all -I "$include" native/*.cpp -o "rarecall/_native$suffix"
library=$([ "$kind" = thread ] && echo libtsan.so || echo libasan.so)
# Python and torch leak by design; torch's own threads are not built for the thread sanitizer, so they stay out of it.
export ASAN_OPTIONS=detect_leaks=0 TSAN_OPTIONS="halt_on_error=1 report_bugs=1 ignore_noninstrumented_modules=1"
export LD_PRELOAD="$(g++ -print-file-name="$library") $(g++ -print-file-name=libstdc++.so)"
export OMP_NUM_THREADS=1 PYTHONPATH="$folder"
"$python" -c "from rarecall import _native; assert _native.__file__.startswith('$folder'), _native.__file__"
"$python" -m pytest -x -q -p no:cacheprovider -k "not fork and not one_line" tests/search/test_exact_native.py \
    tests/search/test_auto.py tests/test_native.py tests/test_recall.py tests/test_neighbours.py tests/test_newest.py \
    tests/test_clock.py tests/test_memory.py
