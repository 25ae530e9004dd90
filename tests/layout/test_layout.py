"""The layout of the sources: who may include whom, what nvcc may see, how long a file may be, which files can be started, and no path of
somebody's machine.

`check(root)` returns the violations as lines of text. The first test holds the real tree to it; the others plant one violation each in a
small tree and expect exactly that one.
"""

import os
import pathlib
import re
import subprocess
import tempfile
import unittest

FLOORS = ["core", "config", "task", "store", "ops", "nn", "mixers", "model", "train", "sweep", "cli"]
TORCH_FREE = {"core", "config", "task", "store"}
SOURCES = {".cpp", ".h", ".cu", ".cuh"}
DEVICE_HEADERS = ["src/core/platform.h", "src/core/philox.h", "src/task/sinks.h", "src/task/events.h"]
LONGEST_FILE = 500

INCLUDE = re.compile(r'^\s*#\s*include\s+(["<])([^">]+)[">]')
TORCH_HEADER = re.compile(r"^(torch|ATen|c10|caffe2|torchgen)/")
# Whole-library headers cost 12 to 22 s a file; ops/tensor.h is there instead.
COSTLY = {"torch/torch.h", "torch/all.h", "torch/extension.h", "ATen/ATen.h"}
DEFINES_FUNCTIONS = "torch/csrc/autograd/custom_function.h"
HOST_LIBRARIES = re.compile(r"^(torch|ATen|c10|caffe2|fmt|spdlog|yaml-cpp|nlohmann|CLI)/|^hdf5")
# Written in pieces, so that this file does not contain them.
MACHINE_PATHS = re.compile("/" + r"(root|work|home/\w+|Users/\w+)" + "/" + r"[\w.]")
REGISTRY_HOSTS = re.compile("(files" + r"\.)?pypi?\." + "(org|python|hosted)|deb" + r"\.debian\." + "org", re.IGNORECASE)


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


def floor_violations(root):
    for path in sources(root, "src"):
        name = path.relative_to(root).as_posix()
        floor = path.relative_to(root / "src").parts[0]
        if floor not in FLOORS:
            yield f"{name}: '{floor}' is no floor"
            continue
        for number, quoted, header in includes(path):
            where = f"{name}:{number}"
            if quoted and "/" in header:
                target = header.split("/")[0]
                if target not in FLOORS:
                    yield f"{where}: \"{header}\" names no floor"
                elif FLOORS.index(target) > FLOORS.index(floor):
                    yield f"{where}: {floor} stands above {target} and must not include \"{header}\""
            if TORCH_HEADER.match(header):
                if floor in TORCH_FREE:
                    yield f"{where}: {floor} knows no torch and must not include <{header}>"
                elif header in COSTLY:
                    yield f"{where}: <{header}> costs seconds in every file; include \"ops/tensor.h\""
                elif header == DEFINES_FUNCTIONS and path.suffix != ".cpp":
                    yield f"{where}: <{header}> belongs into the .cpp file that defines the function"
    for path in sources(root, "tasks"):
        for number, quoted, header in includes(path):
            target = header.split("/")[0]
            if TORCH_HEADER.match(header) or (quoted and target not in ("core", "config", "task")):
                yield f"{path.relative_to(root).as_posix()}:{number}: a task stands on core, config and task alone, not on {header}"


def device_violations(root):
    """Follows the includes that nvcc sees from the headers that kernels use, the tasks and the .cu files."""
    starts = [root / header for header in DEVICE_HEADERS if (root / header).exists()]
    starts += sources(root, "tasks")
    starts += [path for path in sources(root, "src") if path.suffix in (".cu", ".cuh")]
    seen = set()
    while starts:
        path = starts.pop()
        if path in seen:
            continue
        seen.add(path)
        for number, quoted, header in includes(path, for_device=True):
            if HOST_LIBRARIES.match(header):
                yield f"{path.relative_to(root).as_posix()}:{number}: nvcc sees this file, so it must not include <{header}>"
            elif quoted and (root / "src" / header).exists():
                starts.append(root / "src" / header)


def git(root, *arguments):
    """Also in a checkout that somebody else owns, which git refuses otherwise."""
    return subprocess.run(["git", "-c", "safe.directory=*", *arguments], cwd=root, capture_output=True)


def text_files(root):
    listed = git(root, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    if listed.returncode == 0 and listed.stdout:
        paths = [root / name for name in listed.stdout.decode().split("\0") if name]
    else:  # an archive of the sources has no git
        paths = [path for path in root.rglob("*") if not {"build", "results", ".git"} & set(path.relative_to(root).parts)]
    for path in sorted(paths):
        if path.is_file() and not path.is_symlink():
            content = path.read_bytes()
            if b"\0" not in content[:8000]:
                yield path, content.decode("utf-8", errors="replace")


def text_violations(root):
    for path, text in text_files(root):
        name = path.relative_to(root).as_posix()
        lines = text.splitlines()
        if path.suffix in SOURCES and name.split("/")[0] in ("src", "tasks", "tests") and len(lines) > LONGEST_FILE:
            yield f"{name}: {len(lines)} lines; {LONGEST_FILE} at most"
        for number, line in enumerate(lines, 1):
            found = MACHINE_PATHS.search(line) or REGISTRY_HOSTS.search(line)
            if found:
                yield f"{name}:{number}: names a machine or a host: {found.group(0)}"


def mode_violations(root):
    """The mode is that of git's index where there is one: it is what a checkout gets."""
    listed = git(root, "ls-files", "-z", "--stage")
    modes = dict(reversed(line.split("\t", 1)) for line in listed.stdout.decode().split("\0") if line)
    for path, text in text_files(root):
        name = path.relative_to(root).as_posix()
        runs = modes[name].startswith("100755") if name in modes else os.access(path, os.X_OK)
        if text.startswith("#!") and not runs:
            yield f"{name}: begins with #! but cannot be started: chmod +x {name}"
        elif runs and not text.startswith("#!"):
            yield f"{name}: may be started but does not begin with #!: chmod -x {name}"


def check(root):
    return [*floor_violations(root), *device_violations(root), *text_violations(root), *mode_violations(root)]


class TheTree(unittest.TestCase):
    def test_keeps_the_rules(self):
        root = pathlib.Path(__file__).resolve().parents[2]
        self.assertTrue((root / "src/core/error.h").exists())
        violations = check(root)
        self.assertEqual(violations, [], "\n" + "\n".join(violations))

    def test_the_citation_names_the_version(self):
        root = pathlib.Path(__file__).resolve().parents[2]
        built = re.search(r"project\(palimpsest VERSION ([\d.]+)", (root / "CMakeLists.txt").read_text()).group(1)
        cited = re.search(r"^version: (.*)$", (root / "CITATION.cff").read_text(), re.MULTILINE).group(1)
        self.assertEqual(cited, built)

    def test_line_ends_are_those_of_unix_in_every_checkout(self):
        root = pathlib.Path(__file__).resolve().parents[2]
        with tempfile.TemporaryDirectory() as folder:
            written = git(root, "-c", "core.autocrlf=true", "checkout-index", "--all", f"--prefix={folder}/")
            if written.returncode != 0:
                self.skipTest("an archive of the sources has no index")
            checked_out = [*text_files(pathlib.Path(folder))]
            self.assertGreater(len(checked_out), 100)
            self.assertEqual([str(path) for path, text in checked_out if "\r\n" in text], [])


class Planted(unittest.TestCase):
    GOOD = {
        "src/core/platform.h": "#include <cstdint>\n",
        "src/core/philox.h": '#include "core/platform.h"\n',
        "src/core/error.h": "#include <fmt/format.h>\n",
        "src/task/sinks.h": '#include "core/philox.h"\n#ifndef __CUDACC__\n#include "core/error.h"\n#endif\n',
        "src/ops/tensor.h": "#include <ATen/core/Tensor.h>\n",
        "src/ops/chunk.cpp": '#include "ops/tensor.h"\n#include <torch/csrc/autograd/custom_function.h>\n',
        "src/train/trainer.h": '#include "ops/tensor.h"\n#include "trainer_parts.h"\n',
        "tasks/copy.cpp": '#include "task/sinks.h"\n#ifndef __CUDACC__\n#include <fmt/format.h>\n#else\n#include <cstdio>\n#endif\n',
    }

    def violations(self, files={}, modes={}, tracked=()):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for name, text in {**self.GOOD, **files}.items():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_text(text, encoding="utf-8")
                (root / name).chmod(modes.get(name, 0o644))
            if tracked:
                git(root, "init", "--quiet")
                git(root, "add", *tracked)
                for name in tracked:  # the mode in the index is what counts
                    (root / name).chmod(0o644 if name in modes else 0o755)
            return check(root)

    def assert_only(self, name, text, expected):
        self.assertEqual(self.violations(files={name: text}), [expected])

    def test_a_good_tree_passes(self):
        self.assertEqual(self.violations(), [])

    def test_a_floor_below(self):
        self.assert_only("src/nn/linear.h", '#include "train/trainer.h"\n',
                         'src/nn/linear.h:1: nn stands above train and must not include "train/trainer.h"')

    def test_an_unknown_floor(self):
        self.assert_only("src/util/x.h", "", "src/util/x.h: 'util' is no floor")
        self.assert_only("src/nn/x.h", '\n#include "util/x.h"\n', 'src/nn/x.h:2: "util/x.h" names no floor')

    def test_torch_where_there_is_none(self):
        self.assert_only("src/store/file.cpp", "# include <c10/util/Exception.h>\n",
                         "src/store/file.cpp:1: store knows no torch and must not include <c10/util/Exception.h>")

    def test_costly_headers(self):
        self.assert_only("src/train/x.cpp", "#include <torch/torch.h>\n",
                         'src/train/x.cpp:1: <torch/torch.h> costs seconds in every file; include "ops/tensor.h"')
        self.assert_only("src/ops/x.h", f"#include <{DEFINES_FUNCTIONS}>\n",
                         f"src/ops/x.h:1: <{DEFINES_FUNCTIONS}> belongs into the .cpp file that defines the function")

    def test_a_task_that_knows_too_much(self):
        self.assert_only("tasks/copy.cpp", '#include "store/run_file.h"\n',
                         "tasks/copy.cpp:1: a task stands on core, config and task alone, not on store/run_file.h")

    def test_what_nvcc_sees(self):
        self.assert_only("src/core/philox.h", '#include "core/error.h"\n',
                         "src/core/error.h:1: nvcc sees this file, so it must not include <fmt/format.h>")
        self.assert_only("src/task/sinks.h", "#ifdef __CUDACC__\n#include <spdlog/spdlog.h>\n#endif\n",
                         "src/task/sinks.h:2: nvcc sees this file, so it must not include <spdlog/spdlog.h>")
        self.assert_only("src/ops/cuda/kernel.cu", "#include <ATen/core/Tensor.h>\n",
                         "src/ops/cuda/kernel.cu:1: nvcc sees this file, so it must not include <ATen/core/Tensor.h>")

    def test_a_long_file(self):
        self.assert_only("src/cli/long.cpp", "\n" * 501, "src/cli/long.cpp: 501 lines; 500 at most")

    def test_what_can_be_started(self):
        for tracked in ((), ("scripts/x.sh",)):
            self.assertEqual(self.violations({"scripts/x.sh": "#!/bin/sh\n"}, {"scripts/x.sh": 0o755}, tracked), [])
            self.assertEqual(self.violations({"scripts/x.sh": "#!/bin/sh\n"}, {}, tracked),
                             ["scripts/x.sh: begins with #! but cannot be started: chmod +x scripts/x.sh"])
            self.assertEqual(self.violations({"scripts/x.sh": "echo\n"}, {"scripts/x.sh": 0o755}, tracked),
                             ["scripts/x.sh: may be started but does not begin with #!: chmod -x scripts/x.sh"])

    def test_paths_of_a_machine(self):
        path = "/" + "home/ada/project"
        self.assert_only("docs/notes.md", f"\nsee {path}\n", "docs/notes.md:2: names a machine or a host: " + path[:-6])
        host = "pypi" + ".org"
        self.assert_only("scripts/x.sh", f"pip install --index-url https://{host}/simple\n",
                         f"scripts/x.sh:1: names a machine or a host: {host}")


if __name__ == "__main__":
    unittest.main()
