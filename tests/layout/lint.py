"""tests/layout/lint.py [FILE…]: clang-tidy, with the checks of .clang-tidy, over the floors that need no torch: all, or these files alone.

Most of the time goes to the headers of libraries, which the checks go through too. So the files of a floor are read as one, unless two of
them have a name of their own in common. Where that fails nevertheless, they are read one by one.
"""

import concurrent.futures
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
import time

from tools import find

FOLDERS = ("src/core", "src/config", "src/task", "src/store", "tasks")
AT_ONCE = 2
SKIPPED = 77
DIAGNOSTIC = re.compile(r"^(/.*?):(\d+):\d+: (?:warning|error): (.*) \[([^\]]*)\]$", re.MULTILINE)
UNREADABLE = "clang-diagnostic-error"


def arguments_of(entry):
    """What the compiler is told about the language and where headers are. The rest (warnings, g++'s precompiled headers) is its own."""
    words = iter(entry.get("arguments") or shlex.split(entry["command"]))
    kept = []
    for word in words:
        if word in ("-D", "-U", "-I", "-isystem"):
            kept += [word, next(words)]
        elif re.match(r"-[DUI].|-std=", word):
            kept.append(word)
    return tuple(kept)


def own_names(path):
    """Names in a file's unnamed namespaces. One too many costs time, one too few as well."""
    text = path.read_text(encoding="utf-8")
    bodies = re.findall(r"^namespace \{$(.*?)^\}  // namespace$", text, re.MULTILINE | re.DOTALL)
    return set(re.findall(r"^(?![\s#/}]).*?\b(?!final\b)(\w+)(?=(?: final)?(?:\s*[({=;]| : ))", "\n".join(bodies), re.MULTILINE))


def groups(root, database, chosen=()):
    """[(arguments, files)], each to be read as one."""
    made = []
    for entry in sorted(database, key=lambda entry: entry["file"]):
        path = pathlib.Path(entry["directory"], entry["file"])
        name = path.relative_to(root).as_posix() if path.is_relative_to(root) else ""
        if not path.exists() or not (name in chosen if chosen else name.startswith(tuple(folder + "/" for folder in FOLDERS))):
            continue
        kind, names = (path.parent, arguments_of(entry)), own_names(path)
        group = next((group for group in made if group[0] == kind and not group[1] & names), None)
        if group:
            group[1].update(names)
            group[2].append(path)
        else:
            made.append((kind, names, [path]))
    return [(kind[1], files) for kind, _, files in made]


class Lint:
    def __init__(self, root, compiler):
        self.root, self.tool, self.extra = root, find("clang-tidy"), []
        # The wheel of clang-tidy lacks the headers of the compiler (stddef.h and such); those of g++ do.
        home = pathlib.Path(os.path.realpath(self.tool)).parents[1]
        if not any(home.glob("lib/clang/*/include/stddef.h")):
            folder = subprocess.run([compiler, "-print-file-name=include"], capture_output=True, text=True, check=True).stdout.strip()
            self.extra = ["-isystem", folder]

    def read(self, group):
        """{(file, line, what is wrong, check)}"""
        arguments, files = group
        ours = re.sub(r"([.^$*+?()\[\]{}|\\])", r"\\\1", str(self.root))
        with tempfile.TemporaryDirectory() as folder:
            whole = pathlib.Path(folder, "whole.cpp")
            whole.write_text("".join(f'#include "{path}"\n' for path in files), encoding="utf-8")
            done = subprocess.run([self.tool, "--quiet", f"--config-file={self.root}/.clang-tidy", f"--header-filter=^{ours}/", str(whole),
                                   "--", "-w", *arguments, *self.extra], capture_output=True, text=True)
        found = set(DIAGNOSTIC.findall(done.stdout))
        if any(check.startswith(UNREADABLE) for *_, check in found) and len(files) > 1:
            return set().union(*(self.read((arguments, [path])) for path in files))
        if done.returncode != 0 and not found:
            raise SystemExit(f"{self.tool} ended with {done.returncode}\n{done.stdout}{done.stderr}")
        return found


def main(root, build, *chosen):
    began = time.monotonic()
    database = build / "compile_commands.json"
    if not database.exists():
        raise SystemExit(f"{database} is missing: scripts/build.sh release")
    entries = json.loads(database.read_text(encoding="utf-8"))
    todo = groups(root, entries, chosen)
    if not todo:
        raise SystemExit(f"{database} names none of the files to look at")
    lint = Lint(root, shlex.split(entries[0].get("command") or shlex.join(entries[0]["arguments"]))[0])
    todo.sort(key=lambda group: -len(group[1]))
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        found = sorted(set().union(*pool.map(lint.read, todo)), key=lambda each: (each[0], int(each[1])))

    foreign = [each for each in found if not pathlib.Path(each[0]).is_relative_to(root)]
    for path, number, message, check in found:
        name = os.path.relpath(path, root) if (path, number, message, check) not in foreign else path
        print(f"{name}:{number}: {message} [{check.removesuffix(',-warnings-as-errors')}]")
    files = sum(len(files) for _, files in todo)
    print(f"{files} files in {time.monotonic() - began:.0f} s, as {len(todo)}, by {lint.tool}")
    if foreign:
        print("This clang-tidy cannot read the headers of this machine's libraries, so nothing is known about our files.")
        return SKIPPED
    if found:
        names = sorted({os.path.relpath(path, root) for path, *_ in found if path.endswith(".cpp")})
        print("Mend it, then look again: python3 tests/layout/lint.py" + "".join(f" {shlex.quote(name)}" for name in names))
        print("Where the check is wrong: // NOLINT(its name), and why.")
    return 1 if found else 0


if __name__ == "__main__":
    tree = pathlib.Path(__file__).resolve().parents[2]
    binary = os.environ.get("PALIMPSEST_BINARY")
    sys.exit(main(tree, pathlib.Path(binary).parent if binary else tree / "build" / "release", *sys.argv[1:]))
