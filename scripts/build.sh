#!/usr/bin/env bash
# scripts/build.sh PRESET [TARGET…]: set-up, configure, build into build/PRESET. Presets: see CMakePresets.json.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
preset=${1:?usage: scripts/build.sh release|dev|gpu [TARGET…]}
shift

made_for=$(sed -n 's/^CMAKE_HOME_DIRECTORY:INTERNAL=//p' "build/$preset/CMakeCache.txt" 2>/dev/null || true)
if [[ -n $made_for && ! $made_for -ef . ]]; then
    printf 'build: %s was made for the sources in %s, and came here with a copy or a move: remove it (rm -rf %s) and call again\n' \
        "build/$preset" "$made_for" "build/$preset" >&2
    exit 1
fi

scripts/setup.sh
# shellcheck source=/dev/null
source build/setup.env
options=(-DPALIMPSEST_TORCH="$PALIMPSEST_TORCH" -DPALIMPSEST_PYTHON="$PALIMPSEST_PYTHON" -DPALIMPSEST_PREFIX="$PALIMPSEST_PREFIX")
if [[ -n ${PALIMPSEST_CUDA:-} ]]; then options+=(-DPALIMPSEST_CUDA="$PALIMPSEST_CUDA"); fi
mkdir -p "build/$preset"
if ! cmake --preset "$preset" "${options[@]}" >"build/$preset/configure.log" 2>&1; then
    cat "build/$preset/configure.log" >&2
    exit 1
fi
grep -E '^-- (LibTorch|CUDA):' "build/$preset/configure.log" || true

# A file that includes ATen takes up to 1.5 GB to compile.
memory=$(awk '/MemAvailable/ {print int($2 / 1500000)}' /proc/meminfo)
jobs=$(nproc)
if ((memory < jobs)); then jobs=$((memory > 0 ? memory : 1)); fi
targets=()
if (($#)); then targets=(--target "$@"); fi
cmake --build "build/$preset" --parallel "$jobs" "${targets[@]}"
