"""tests/layout/format.py [--write]: every source is formatted as .clang-format says, or (--write) becomes so."""

import collections
import pathlib
import re
import subprocess
import sys
import time

from tools import find
from tree import SOURCES, listed

MEND = "python3 tests/layout/format.py --write"
SHOWN = 5  # lines a file


def run(tool, root, names, *options):
    """clang-format's words on all files, which takes them two hundred at a time: a command line is not endless."""
    said = ""
    for start in range(0, len(names), 200):
        done = subprocess.run([tool, "--style=file", *options, *names[start:start + 200]], cwd=root, capture_output=True, text=True)
        said += done.stderr
        if done.returncode != 0:
            raise SystemExit(f"{tool}: {done.returncode}\n{done.stderr}")
    return said


def violations(tool, root, names):
    lines = collections.defaultdict(list)
    said = run(tool, root, names, "--dry-run")
    for name, number in re.findall(r"^(.*?):(\d+):\d+: .*\[-Wclang-format-violations\]$", said, re.MULTILINE):
        if number not in lines[name]:
            lines[name].append(number)
    for name in sorted(lines):
        for number in lines[name][:SHOWN]:
            yield f"{name}:{number}: is not as .clang-format says"
        if len(lines[name]) > SHOWN:
            yield f"{name}: and {len(lines[name]) - SHOWN} more lines"


def main(root, *options):
    began = time.monotonic()
    tool = find("clang-format")
    names = [path.relative_to(root).as_posix() for path in listed(root) if path.suffix in SOURCES]
    if not names:
        raise SystemExit(f"there are no sources in {root}")
    if options == ("--write",):
        run(tool, root, names, "-i")
        return 0
    found = [*violations(tool, root, names)]
    print(*found, f"{len(names)} files in {time.monotonic() - began:.1f} s, by {tool}", sep="\n")
    if found:
        print(f"This mends it: {MEND}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(__file__).resolve().parents[2], *sys.argv[1:]))
