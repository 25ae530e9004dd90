#!/usr/bin/env bash
# On a machine with a GPU, offline if need be: builds with CUDA, runs all tests, the conformance laws on the GPU, and a short sweep of
# every mixer there. Takes LibTorch and the packages for Python from python3 on PATH unless PALIMPSEST_TORCH or PALIMPSEST_PYTHON are set.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit
export PALIMPSEST_PYTHON=${PALIMPSEST_PYTHON:-$(command -v python3)}
mkdir -p build
results=$(mktemp -d build/gpu-check-XXXXXX)
trap 'rm -rf "$results"' EXIT

table=
failed=0
step() {
    local name=$1 start=$SECONDS outcome=ok
    shift
    printf '\n== %s\n' "$name"
    "$@" || { outcome=FAILED && failed=1; }
    table+=$(printf '%-12s %-7s %5d s' "$name" $outcome $((SECONDS - start)))$'\n'
    [[ $outcome == ok ]]
}

step build scripts/build.sh gpu || { printf '\n%s' "$table" && exit 1; }
step tests ctest --test-dir build/gpu --parallel "$(nproc)" --output-on-failure --label-exclude '^slow$' --no-tests=error
step conformance env PALIMPSEST_TEST_DEVICE=cuda build/gpu/tests/test_conformance '~[slow]~[.]'
step sweep build/gpu/palimpsest sweep experiments/textbook_overwrite/sweep.yaml --results "$results" name=gpu_check run.device=cuda \
    train.steps=100 train.warmup=10 sweep.seeds=1 'sweep.grid.train.lr=[5e-3]' mixers.performer.redraw_every=0

printf '\n%s' "$table"
exit $failed
