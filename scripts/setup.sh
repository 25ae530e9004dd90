#!/usr/bin/env bash
# Finds or installs what the build needs, and writes build/setup.env, which the other scripts and CMake read:
#   PALIMPSEST_TORCH   LibTorch: what you set; else the torch of python3 on PATH (2.5 or later); else a shared virtual environment
#   PALIMPSEST_PYTHON  Python with numpy, h5py, matplotlib, xarray, netCDF4 (plots and tests): likewise
# The virtual environment lies under ${XDG_CACHE_HOME:-~/.cache}/palimpsest and serves every checkout. With a CUDA compiler of the right
# version it gets all of torch's CUDA packages (4.7 GB), otherwise what the CPU needs (1.3 GB); PALIMPSEST_CUDA=OFF asks for the latter.
# A second call installs nothing.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

torch_version=2.11.0
torch_cuda=13
torch_minimal=("torch==$torch_version" "nvidia-cuda-runtime==13.0.*" "nvidia-cuda-cupti==13.0.*")
python_packages=(numpy h5py matplotlib xarray netCDF4)
cache=${XDG_CACHE_HOME:-${HOME:?HOME is not set; set it or XDG_CACHE_HOME}/.cache}/palimpsest
venv=$cache/venv

say() { printf '%s\n' "$*"; }
die() { printf 'setup: %s\n' "$*" >&2; exit 1; }
have() { command -v "$1" >/dev/null 2>&1; }

# ---- the system's packages: by what can be used, not by who installed it ----

have_header() {
    local folder
    for folder in /usr/include /usr/local/include "/usr/include/$(uname -m)-linux-gnu" /usr/include/hdf5/serial ${CPATH:+${CPATH//:/ }} \
        ${CMAKE_PREFIX_PATH:+${CMAKE_PREFIX_PATH//:/\/include }/include}; do
        [[ -e $folder/$1 ]] && return 0
    done
    return 1
}

needed=() wanted=()
have g++ || needed+=(g++)
have cmake || needed+=(cmake)
have ninja || needed+=(ninja-build)
have python3 || needed+=(python3)
have_header fmt/format.h || needed+=(libfmt-dev)
have_header spdlog/spdlog.h || needed+=(libspdlog-dev)
have_header yaml-cpp/yaml.h || needed+=(libyaml-cpp-dev)
have_header hdf5.h || needed+=(libhdf5-dev)
have_header nlohmann/json.hpp || needed+=(nlohmann-json3-dev)
have_header CLI/CLI.hpp || needed+=(libcli11-dev)
have_header catch2/catch.hpp || have_header catch2/catch_all.hpp || needed+=(catch2)
# Not needed, but a faster build, and a test that reads our files with the tools of HDF5.
have ccache || wanted+=(ccache)
have mold || have ld.lld || wanted+=(mold)
have h5dump || wanted+=(hdf5-tools)

apt_install() {
    local as_root=()
    if [[ $(id -u) != 0 ]]; then
        have sudo || die "these packages are missing, and there is no sudo: $*. As root: apt-get install $*"
        as_root=(sudo)
    fi
    have apt-get || die "these packages are missing, and there is no apt-get; install the like of them: $*"
    say "Installing packages: $*"
    if [[ -z ${apt_updated:-} ]]; then
        "${as_root[@]}" apt-get -qq update || die "apt-get update failed; still missing: $*"
        apt_updated=yes
    fi
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -y --no-install-recommends install "$@" >/dev/null ||
        die "apt-get install failed: $*"
}

if ((${#needed[@]})); then
    apt_install "${needed[@]}" "${wanted[@]}"
elif ((${#wanted[@]})) && have apt-get && { [[ $(id -u) == 0 ]] || have sudo; }; then
    (apt_install "${wanted[@]}") || say "Going on without: ${wanted[*]}"
fi

# ---- LibTorch and Python ----

# The folder of a module of python3, without importing it (importing torch takes seconds).
module_folder() {
    "$1" -c 'import importlib.util, os, sys
spec = importlib.util.find_spec(sys.argv[1])
print(os.path.dirname(spec.origin) if spec and spec.origin else "")' "$2" 2>/dev/null || true
}
has_modules() {
    "$1" -c 'import importlib.util, sys
sys.exit(any(importlib.util.find_spec(name) is None for name in sys.argv[1:]))' "${@:2}" 2>/dev/null
}
torch_version_in() {
    local header
    for header in "$1/include/torch/headeronly/version.h" "$1/include/torch/csrc/api/include/torch/version.h"; do
        [[ -e $header ]] || continue
        sed -n 's/^#define TORCH_VERSION_\(MAJOR\|MINOR\) \([0-9]*\)$/\2/p' "$header" | paste -sd. -
        return
    done
}
recent_enough() { [[ -n $1 ]] && [[ $(printf '%s\n2.5\n' "$1" | sort -V | head -1) == 2.5 ]]; }

torch=${PALIMPSEST_TORCH:-}
if [[ -n $torch ]]; then
    recent_enough "$(torch_version_in "$torch")" || die "PALIMPSEST_TORCH=$torch holds no LibTorch of 2.5 or later"
    torch=$(cd "$torch" && pwd)
else
    found=$(module_folder python3 torch)
    if [[ -n $found ]] && recent_enough "$(torch_version_in "$found")"; then
        torch=$found
    fi
fi

python=${PALIMPSEST_PYTHON:-}
if [[ -n $python ]]; then
    has_modules "$python" numpy h5py matplotlib || die "PALIMPSEST_PYTHON=$python lacks numpy, h5py or matplotlib"
elif has_modules python3 "${python_packages[@]}"; then
    python=$(command -v python3)
fi

# What the virtual environment has to hold, one word each; a file .holds/WORD says that it does.
groups=()
if [[ -z $python ]]; then
    groups+=(python)
fi
if [[ -z $torch ]]; then
    nvcc_major=$( (nvcc --version 2>/dev/null || true) | sed -n 's/.*release \([0-9]*\)\..*/\1/p')
    if [[ ${PALIMPSEST_CUDA:-AUTO} == OFF || -z $nvcc_major ]]; then
        groups+=("torch-$torch_version-cpu")
    elif [[ $nvcc_major != "$torch_cuda" ]]; then
        say "The CUDA compiler is version $nvcc_major; torch $torch_version is built for CUDA $torch_cuda: building without CUDA"
        groups+=("torch-$torch_version-cpu")
    else
        groups+=("torch-$torch_version-cuda")
    fi
fi

pip_install() { "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-input --no-cache-dir "$@"; }
holds() { [[ -e $venv/.holds/$1 || ($1 == *-cpu && -e $venv/.holds/${1%-cpu}-cuda) ]]; }

works() { [[ -e $venv/.holds/pip ]] && "$venv/bin/python" -c pass 2>/dev/null; }  # not after its python3 was removed

fill_venv() {
    # A set-up killed half-way leaves the mark `.filling`: nobody knows what is missing then, so it starts again.
    if [[ -e $venv/.filling ]] || ! works; then
        rm -rf "$venv"
        if ! python3 -c 'import ensurepip, venv' 2>/dev/null; then
            apt_install python3-venv
        fi
        mkdir -p "$venv"
        touch "$venv/.filling"
        python3 -m venv "$venv"
        mkdir "$venv/.holds"
        touch "$venv/.holds/pip"
    fi
    local group
    touch "$venv/.filling"
    for group in "${groups[@]}"; do
        holds "$group" && continue
        case $group in
            python) say "Installing for Python: ${python_packages[*]}" && pip_install "${python_packages[@]}" ;;
            *-cpu) say "Installing LibTorch $torch_version for the CPU (1.3 GB)" && pip_install --no-deps "${torch_minimal[@]}" ;;
            *-cuda) say "Installing LibTorch $torch_version with CUDA (4.7 GB)" && pip_install "torch==$torch_version" ;;
        esac || die "pip could not install $group into $venv"
        touch "$venv/.holds/$group"
    done
    rm "$venv/.filling"
}

missing=no
for group in "${groups[@]}"; do holds "$group" || missing=yes; done
if ((${#groups[@]})) && { [[ $missing == yes || -e $venv/.filling ]] || ! works; }; then
    mkdir -p "$cache"
    (
        flock 9  # another checkout may be setting up just now
        fill_venv
    ) 9>"$cache/lock"
fi
if [[ -z $python ]]; then python=$venv/bin/python; fi
if [[ -z $torch ]]; then torch=$(module_folder "$venv/bin/python" torch); fi
[[ -e $torch/lib/libtorch_cpu.so ]] || die "no LibTorch in '$torch': lib/libtorch_cpu.so is missing"
lost=$(ldd "$torch/lib/libtorch_cpu.so" | sed -n 's/^\s*\(\S*\) => not found/\1/p' | sort -u | paste -sd' ' -)
[[ -z $lost ]] || die "LibTorch in $torch cannot be loaded, it misses: $lost"

mkdir -p build
settings=$(printf "PALIMPSEST_TORCH='%s'\nPALIMPSEST_PYTHON='%s'\n" "$torch" "$python")
if [[ $(cat build/setup.env 2>/dev/null) != "$settings" ]]; then
    printf '%s\n' "$settings" >build/setup.env.new
    mv build/setup.env.new build/setup.env
fi
say "LibTorch $(torch_version_in "$torch"): $torch"
say "Python: $python"
