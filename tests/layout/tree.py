"""The files of a tree as the scripts beside this one see them: its sources, what they include, its text files."""

import re
import subprocess

SOURCES = {".cpp", ".h", ".cu", ".cuh"}
INCLUDE = re.compile(r'^\s*#\s*include\s+(["<])([^">]+)[">]')


def sources(root, *folders):
    for folder in folders:
        for path in sorted((root / folder).rglob("*")):
            if path.is_file() and path.suffix in SOURCES:
                yield path


def includes(path, for_device=False):
    """(line number, is quoted, name) of each include; for the device, without what stands under `#ifndef __CUDACC__`."""
    skipping = []  # one flag for each open #if
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        directive = re.match(r"^\s*#\s*(ifdef|ifndef|if|else|elif|endif)\b\s*(.*)", line)
        if directive:
            word, rest = directive.groups()
            about_device = "__CUDACC__" in rest
            if word in ("if", "ifdef", "ifndef"):
                hidden = for_device and about_device and (word == "ifndef" or rest.replace(" ", "").startswith("!defined"))
                skipping.append([hidden, about_device])
            elif word in ("else", "elif") and skipping:
                skipping[-1][0] = for_device and skipping[-1][1] and not skipping[-1][0]
            elif word == "endif" and skipping:
                skipping.pop()
        found = INCLUDE.match(line)
        if found and not any(hidden for hidden, _ in skipping):
            yield number, found.group(1) == '"', found.group(2)


def git(root, *arguments):
    """Also in a checkout that somebody else owns, which git refuses otherwise."""
    return subprocess.run(["git", "-c", "safe.directory=*", *arguments], cwd=root, capture_output=True)


def listed(root):
    """All files that belong to the tree: those that git tracks or would, and in an archive of the sources, which has no git, all."""
    found = git(root, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    if found.returncode == 0 and found.stdout:
        paths = [root / name for name in found.stdout.decode().split("\0") if name]
    else:
        paths = [path for path in root.rglob("*") if not {"build", "results", ".git"} & set(path.relative_to(root).parts)]
    return [path for path in sorted(set(paths)) if path.is_file() and not path.is_symlink()]


def text_files(root):
    for path in listed(root):
        content = path.read_bytes()
        if b"\0" not in content[:8000]:
            yield path, content.decode("utf-8", errors="replace")
