"""The tools that the gates call: those of one version, since another one judges otherwise."""

import os
import pathlib
import re
import shutil
import subprocess

MAJOR = 14


def venv():
    """The virtual environment of scripts/setup.sh."""
    cache = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    return pathlib.Path(cache) / "palimpsest" / "venv"


def version(program):
    """None where it cannot be started."""
    try:
        said = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return None
    found = re.search(r"version (\d+)[\d.]*", said)
    return int(found.group(1)) if found else None


def find(name):
    """clang-format or clang-tidy: of PATH, else what `scripts/setup.sh --gates` installed. Ends the script where there is none."""
    places = [name, f"{name}-{MAJOR}", str(venv() / "bin" / name)]
    for place in places:
        program = shutil.which(place)
        if program and version(program) == MAJOR:
            return program
    raise SystemExit(f"{name} {MAJOR} is neither on PATH nor in {venv()}: scripts/setup.sh --gates installs it")
