#!/usr/bin/env bash
# From a bare Debian 12 or Ubuntu 24.04 with git and python3 to a table and two pictures: softmax, linear attention, DeltaNet and Gated
# DeltaNet on recall and on overwritten keys. A second call installs and builds nothing, and skips finished runs.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
results=results/quickstart

times=
timed() {
    local name=$1 start=$SECONDS
    shift
    "$@"
    times+="${times:+, }$name $((SECONDS - start)) s"
}
plot() { env -u PYTHONPATH -u PYTHONHOME "$PALIMPSEST_PYTHON" scripts/plot.py "$results" "$@"; }
plots() {
    plot --x overwrites --filter task.name=overwrite --out "$results/accuracy.png"
    plot --kind classes --out "$results/answers.png"
}

timed set-up scripts/setup.sh
# shellcheck source=/dev/null
source build/setup.env
timed build scripts/build.sh release palimpsest
timed sweep build/release/palimpsest sweep configs/quickstart.yaml
timed compare build/release/palimpsest compare "$results" --by task.name,model.layers
timed plots plots

echo
echo "$times"
echo "Pictures:"
echo "  $PWD/$results/accuracy.png"
echo "  $PWD/$results/answers.png"
