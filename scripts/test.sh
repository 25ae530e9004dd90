#!/usr/bin/env bash
# scripts/test.sh [--all]: set-up, build, and every test; --all adds the slow ones. Ends with the summary of ctest.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
selection=(--label-exclude '^slow$')
case ${1:-} in
    "") ;;
    --all) selection=() ;;
    *) echo "usage: scripts/test.sh [--all]" >&2 && exit 2 ;;
esac

scripts/build.sh release
scripts/setup.sh --gates | sed '/^LibTorch \|^Python: /d' || echo 'Going on without the tools of the tests format and lint'
printf 'Set-up and build took %d s.\n' $SECONDS
# Tests over ATen bring threads of their own and say so (PROCESSORS); the others run two at a time.
exec ctest --test-dir build/release --output-on-failure --parallel 2 --no-tests=error "${selection[@]}"
