#!/usr/bin/env bash
# scripts/setup.sh [--gates]: finds or installs what the build needs, and writes build/setup.env, which other scripts and CMake read:
#   PALIMPSEST_TORCH   LibTorch: what you set; else the torch of python3 on PATH (2.5 or later); else a shared virtual environment
#   PALIMPSEST_PYTHON  Python with numpy, h5py, matplotlib, xarray, netCDF4 (plots and tests): likewise
#   PALIMPSEST_PREFIX  the active conda environment where it holds all libraries and the system does not; else empty
# The virtual environment lies under ${XDG_CACHE_HOME:-~/.cache}/palimpsest and serves every checkout. With a CUDA compiler of the right
# version it gets all of torch's CUDA packages (4.7 GB), otherwise what the CPU needs (1.3 GB); PALIMPSEST_CUDA=OFF asks for the latter.
# With --gates also clang-format and clang-tidy of one version, for scripts/test.sh: those of PATH, else in the virtual environment (90 MB).
# A second call installs nothing.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

with_gates=''
case ${1:-} in
    "") ;;
    --gates) with_gates=yes ;;
    *) echo "usage: scripts/setup.sh [--gates]" >&2 && exit 2 ;;
esac

torch_version=2.11.0
torch_cuda=13
torch_minimal=("torch==$torch_version" "nvidia-cuda-runtime==13.0.*" "nvidia-cuda-cupti==13.0.*")
gates_version=14.0.6
python_packages=(numpy h5py matplotlib xarray netCDF4)
system=(/usr /usr/local)
libraries=( # Debian's name, conda-forge's, header or headers of which one is enough
    "libfmt-dev fmt fmt/format.h"
    "libspdlog-dev spdlog spdlog/spdlog.h"
    "libyaml-cpp-dev yaml-cpp yaml-cpp/yaml.h"
    "libhdf5-dev hdf5 hdf5.h"
    "nlohmann-json3-dev nlohmann_json nlohmann/json.hpp"
    "libcli11-dev cli11 CLI/CLI.hpp"
    "catch2 catch2 catch2/catch.hpp catch2/catch_all.hpp"
)
cache=${XDG_CACHE_HOME:-${HOME:?HOME is not set; set it or XDG_CACHE_HOME}/.cache}/palimpsest
venv=$cache/venv

say() { printf '%s\n' "$*"; }
die() { printf 'setup: %s\n' "$*" >&2; exit 1; }
have() { command -v "$1" >/dev/null 2>&1; }

# Python looks for modules in its own folders alone. pip may be told where packages come from, but not what to install, or where to.
unset PYTHONPATH PYTHONHOME
for name in $(compgen -e PIP_); do
    case ${name#PIP_} in
        INDEX_URL | EXTRA_INDEX_URL | FIND_LINKS | NO_INDEX | TRUSTED_HOST | CERT | CLIENT_CERT | KEYRING_PROVIDER) ;;
        CONFIG_FILE | PROXY | TIMEOUT | DEFAULT_TIMEOUT | RETRIES) ;;
        *) unset "$name" ;;
    esac
done
export PIP_USER=no PIP_REQUIRE_HASHES=no # for pip.conf

# ---- the system's packages: by what can be used, not by who installed it ----

has_header() {
    local header folder
    for header in "${@:2}"; do
        for folder in include include/hdf5/serial "include/$(uname -m)-linux-gnu"; do
            [[ -e $1/$folder/$header ]] && return 0
        done
    done
    return 1
}
# "DEBIAN CONDA", the names of each library that no prefix given here holds.
lacking() {
    local row debian conda headers prefix
    for row in "${libraries[@]}"; do
        read -r debian conda headers <<<"$row"
        for prefix; do
            # shellcheck disable=SC2086
            has_header "$prefix" $headers && continue 2
        done
        printf '%s %s\n' "$debian" "$conda"
    done
}

needed=() wanted=() prefix='' advice=''
have g++ || needed+=(g++)
have cmake || needed+=(cmake)
have ninja || needed+=(ninja-build)
have python3 || needed+=(python3)
IFS=: read -ra prefixes <<<"${CMAKE_PREFIX_PATH:-}"
missing=$(lacking "${system[@]}" "${prefixes[@]}" | cut -d' ' -f1)
if [[ -n $missing && -n ${CONDA_PREFIX:-} ]]; then
    conda_lacks=$(lacking "$CONDA_PREFIX" | cut -d' ' -f2 | paste -sd' ' -)
    if [[ -z $conda_lacks ]]; then
        prefix=$CONDA_PREFIX missing=''
        say "Libraries: all of them from $prefix, since the system lacks some"
    else
        advice=". Or let conda hold all of them: conda install -c conda-forge $conda_lacks"
    fi
fi
# shellcheck disable=SC2206
needed+=($missing)
# Not needed, but a faster build, and a test that reads our files with the tools of HDF5.
have ccache || wanted+=(ccache)
have mold || have ld.lld || wanted+=(mold)
have h5dump || wanted+=(hdf5-tools)

apt_install() {
    local as_root=()
    if [[ $(id -u) != 0 ]]; then
        have sudo || die "these packages are missing, and there is no sudo: $*. As root: apt-get install $*$advice"
        [[ -t 0 ]] || sudo -n true 2>/dev/null ||
            die "these packages are missing, and sudo wants a password: $*. As root: apt-get install $*$advice"
        as_root=(sudo)
    fi
    have apt-get || die "these packages are missing, and there is no apt-get; install the like of them: $*$advice"
    say "Installing packages: $*"
    if [[ -z ${apt_updated:-} ]]; then
        "${as_root[@]}" apt-get -qq update || die "apt-get update failed; still missing: $*$advice"
        apt_updated=yes
    fi
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -y --no-install-recommends install "$@" >/dev/null ||
        die "apt-get install failed: $*$advice"
}

if ((${#needed[@]})); then apt_install "${needed[@]}"; fi
# For these nobody is asked for a password, and what could not be had is not tried again.
tried=build/setup.tried
if ((${#wanted[@]})) && have apt-get && [[ $(cat $tried 2>/dev/null) != "${wanted[*]}" ]] &&
    { [[ $(id -u) == 0 ]] || sudo -n true 2>/dev/null; }; then
    if ! (apt_install "${wanted[@]}"); then
        say "Going on without: ${wanted[*]}"
        mkdir -p build
        printf '%s\n' "${wanted[*]}" >$tried
    fi
fi

# ---- LibTorch and Python ----

# The folder of a module, without importing it (importing torch takes seconds).
module_folder() {
    "$1" -c 'import importlib.util, os, sys
spec = importlib.util.find_spec(sys.argv[1])
print(os.path.dirname(spec.origin) if spec and spec.origin else "")' "$2" 2>/dev/null || true
}
# Why a Python cannot import one of the modules; nothing when it can.
import_fault() {
    MPLBACKEND=agg "$1" -c 'import importlib, sys
for name in sys.argv[1:]:
    try:
        importlib.import_module("matplotlib.pyplot" if name == "matplotlib" else name)
    except Exception as e:
        print(f"{name}: {e}".splitlines()[0])
        break' "${@:2}" 2>/dev/null || printf '%s cannot be started, or crashes when it imports %s\n' "$1" "${*:2}"
}
torch_version_in() {
    local header
    for header in "$1/include/torch/headeronly/version.h" "$1/include/torch/csrc/api/include/torch/version.h"; do
        [[ -e $header ]] || continue
        sed -n 's/^#define TORCH_VERSION_\(MAJOR\|MINOR\) \([0-9]*\)$/\2/p' "$header" | paste -sd. -
        return
    done
}
# Why a LibTorch cannot be used; nothing when it can.
torch_fault() {
    local version lost
    version=$(torch_version_in "$1")
    if [[ -z $version || ! -e $1/lib/libtorch_cpu.so ]]; then
        say "'$1' holds no LibTorch: include/ or lib/libtorch_cpu.so is missing"
    elif [[ $(printf '%s\n2.5\n' "$version" | sort -V | head -1) != 2.5 ]]; then
        say "LibTorch $version in $1 is too old: 2.5 or later is needed"
    elif ! grep -q '_ZN.*St7__cxx11' "$1/lib/libc10.so"; then
        say "LibTorch in $1 is built with the old C++ string ABI: take a torch wheel of 2.6 or later, or one of the \"cxx11 ABI\""
    else
        lost=$(ldd "$1/lib/libtorch_cpu.so" | sed -n 's/^\s*\(\S*\) => not found/\1/p' | sort -u | paste -sd' ' -)
        [[ -z $lost ]] || say "LibTorch in $1 cannot be loaded, it misses: $lost"
    fi
}

torch=${PALIMPSEST_TORCH:-}
if [[ -n $torch ]]; then
    fault=$(torch_fault "$torch")
    [[ -z $fault ]] || die "PALIMPSEST_TORCH: $fault"
    torch=$(cd "$torch" && pwd)
else
    torch=$(module_folder python3 torch)
    if [[ -n $torch ]]; then
        fault=$(torch_fault "$torch")
        [[ -z $fault ]] || { torch='' && say "Not taken from python3: $fault"; }
    fi
fi

python=${PALIMPSEST_PYTHON:-}
if [[ -n $python ]]; then
    fault=$(import_fault "$python" numpy h5py matplotlib)
    [[ -z $fault ]] || die "PALIMPSEST_PYTHON=$python cannot be used (numpy, h5py and matplotlib are needed): $fault"
    python=$(command -v "$python")
    [[ $python == /* ]] || python=$PWD/$python
else
    fault=$(import_fault python3 "${python_packages[@]}")
    if [[ -z $fault ]]; then
        python=$(command -v python3)
    elif [[ $fault != *": No module named"* ]]; then
        say "Not taken: python3, which cannot import $fault"
    fi
fi

# Whether a tool of the gates is the version that the sources are held to (tests/layout/tools.py looks at the same places).
right_tool() { [[ $("$1" --version 2>/dev/null || true) == *"version ${gates_version%%.*}."* ]]; }

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
if [[ -n $with_gates ]]; then
    for tool in clang-format clang-tidy; do
        right_tool $tool || right_tool "$tool-${gates_version%%.*}" || groups+=("$tool-$gates_version")
    done
fi

pip_install() { "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-input --no-cache-dir "$@"; }
holds() { [[ -e $venv/.holds/$1 || ($1 == *-cpu && -e $venv/.holds/${1%-cpu}-cuda) ]]; }
# Why a group that the virtual environment should hold cannot be used, say since its python3 was removed or replaced.
fault_in_venv() {
    case $1 in
        python) import_fault "$venv/bin/python" "${python_packages[@]}" ;;
        clang-*) right_tool "$venv/bin/${1%-*}" || say "it is not of this version" ;;
        *) torch_fault "$(module_folder "$venv/bin/python" torch)" ;;
    esac
}
# Whether the virtual environment is whole: made to its end (the mark `.filling` says that a set-up was killed half-way), and usable.
whole() {
    local group
    [[ -e $venv/.holds/pip && ! -e $venv/.filling ]] || return 1
    for group in "${groups[@]}"; do
        if holds "$group" && [[ -n $(fault_in_venv "$group") ]]; then return 1; fi
    done
}

# Without a gate's tool everything can be built and the gate alone fails.
lacks() { if [[ $1 == clang-* ]]; then say "Going on without: $2"; else die "$2"; fi; }

fill_venv() {
    if ! whole; then # nobody knows what is missing then
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
    local group fault
    touch "$venv/.filling"
    for group in "${groups[@]}"; do
        holds "$group" && continue
        case $group in
            python) say "Installing for Python: ${python_packages[*]}" && pip_install "${python_packages[@]}" ;;
            # Never from source, which is all of LLVM.
            clang-*) say "Installing ${group%-*} ${group##*-}" && pip_install --only-binary=:all: "${group%-*}==${group##*-}" ;;
            *-cpu) say "Installing LibTorch $torch_version for the CPU (1.3 GB)" && pip_install --no-deps "${torch_minimal[@]}" ;;
            *-cuda) say "Installing LibTorch $torch_version with CUDA (4.7 GB)" && pip_install "torch==$torch_version" ;;
        esac || { lacks "$group" "pip could not install $group into $venv"; continue; }
        fault=$(fault_in_venv "$group")
        [[ -z $fault ]] || { lacks "$group" "pip installed $group into $venv, but it cannot be used: $fault"; continue; }
        touch "$venv/.holds/$group"
    done
    rm "$venv/.filling"
}

ready=yes
for group in "${groups[@]}"; do holds "$group" || ready=no; done
if ((${#groups[@]})) && { [[ $ready == no ]] || ! whole; }; then
    mkdir -p "$cache"
    (
        # Another checkout may be setting up just now.
        flock 9 || say "Files in $cache cannot be locked: no other set-up must run beside this one"
        fill_venv
    ) 9>"$cache/lock"
fi
if [[ -z $python ]]; then python=$venv/bin/python; fi
if [[ -z $torch ]]; then torch=$(module_folder "$venv/bin/python" torch); fi

# setup.env is text for the shell, whatever its values hold.
quoted() { printf "'%s'" "${1//\'/\'\\\'\'}"; }
mkdir -p build
settings=$(for name in torch python prefix; do printf 'PALIMPSEST_%s=%s\n' "${name^^}" "$(quoted "${!name}")"; done)
if [[ $(cat build/setup.env 2>/dev/null) != "$settings" ]]; then
    printf '%s\n' "$settings" >build/setup.env.new
    mv build/setup.env.new build/setup.env
fi
say "LibTorch $(torch_version_in "$torch"): $torch"
say "Python: $python"
