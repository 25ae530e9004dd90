"""The layout of the sources: who may include whom, no knots inside a floor, what nvcc may see, how long a file may be, which files can be
started, and no path of somebody's machine.

`check(root)` returns the violations as lines of text. The first tests hold the real tree to it; the others plant one violation each in a
small tree and expect exactly that one. Called with --graph it prints who needs whom inside the floors, with --graph --write into
docs/design.md.
"""

import os
import pathlib
import re
import sys
import tempfile
import unittest

import graph
from tree import SOURCES, git, includes, sources, text_files

FLOORS = ["core", "config", "task", "store", "ops", "nn", "mixers", "model", "train", "sweep", "cli"]
TORCH_FREE = {"core", "config", "task", "store"}
DEVICE_HEADERS = ["src/core/platform.h", "src/core/philox.h", "src/task/sinks.h", "src/task/events.h"]
LONGEST_FILE = 500

TORCH_HEADER = re.compile(r"^(torch|ATen|c10|caffe2|torchgen)/")
# Whole-library headers cost 12 to 22 s a file; ops/tensor.h is there instead.
COSTLY = {"torch/torch.h", "torch/all.h", "torch/extension.h", "ATen/ATen.h"}
DEFINES_FUNCTIONS = "torch/csrc/autograd/custom_function.h"
HOST_LIBRARIES = re.compile(r"^(torch|ATen|c10|caffe2|fmt|spdlog|yaml-cpp|nlohmann|CLI)/|^hdf5")
# Written in pieces, so that this file does not contain them.
MACHINE_PATHS = re.compile("/" + r"(root|work|home/\w+|Users/\w+)" + "/" + r"[\w.]")
REGISTRY_HOSTS = re.compile("(files" + r"\.)?pypi?\." + "(org|python|hosted)|deb" + r"\.debian\." + "org", re.IGNORECASE)


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


ROOT = pathlib.Path(__file__).resolve().parents[2]
RENEW = "python3 tests/layout/test_layout.py --graph --write"


def graph_violations(root):
    """docs/design.md holds the graph as the sources say."""
    text = (root / "docs/design.md").read_text(encoding="utf-8") if (root / "docs/design.md").exists() else ""
    if graph.BEGIN not in text:
        yield f"docs/design.md: holds no {graph.BEGIN.strip()}"
    elif graph.put(text, graph.text(root, FLOORS)) != text:
        yield f"docs/design.md: its graph of the floors is not that of the sources: {RENEW}"


def check(root):
    return [*floor_violations(root), *device_violations(root), *text_violations(root), *mode_violations(root)]


class TheTree(unittest.TestCase):
    def hold(self, violations):
        self.assertTrue((ROOT / "src/core/error.h").exists())
        violations = [*violations]
        self.assertEqual(violations, [], "\n" + "\n".join(violations))

    def test_keeps_the_rules(self):
        self.hold(check(ROOT))

    def test_no_knots_inside_a_floor(self):
        self.hold(graph.knot_violations(ROOT))

    def test_the_document_shows_the_floors_as_they_are(self):
        self.hold(graph_violations(ROOT))

    def test_the_citation_names_the_version(self):
        built = re.search(r"project\(palimpsest VERSION ([\d.]+)", (ROOT / "CMakeLists.txt").read_text()).group(1)
        cited = re.search(r"^version: (.*)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE).group(1)
        self.assertEqual(cited, built)

    def test_line_ends_are_those_of_unix_in_every_checkout(self):
        with tempfile.TemporaryDirectory() as folder:
            written = git(ROOT, "-c", "core.autocrlf=true", "checkout-index", "--all", f"--prefix={folder}/")
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
        self.assert_only("tasks/copy.cpp", '#include "store/run_record.h"\n',
                         "tasks/copy.cpp:1: a task stands on core, config and task alone, not on store/run_record.h")

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


class Knots(unittest.TestCase):
    """The graph inside a floor, in small trees: {file below src/x: what it includes of its floor}."""

    def planted(self, files, judge):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for name, included in files.items():
                (root / "src/store" / name).parent.mkdir(parents=True, exist_ok=True)
                (root / "src/store" / name).write_text("".join(f'#include "store/{header}"\n' for header in included.split()))
            return judge(root)

    def assert_knots(self, files, *expected):
        self.assertEqual(self.planted(files, lambda root: [*graph.knot_violations(root)]), [f"src/store: {each}" for each in expected])

    def test_none(self):
        self.assert_knots({"a.h": "", "a.cpp": "a.h", "b.h": "a.h", "b.cpp": "b.h a.h", "verb.cpp": "a.h b.h"})

    def test_headers_that_include_each_other(self):
        self.assert_knots({"a.h": "c.h", "b.h": "a.h", "c.h": "b.h"}, "a -> c -> b -> a")

    def test_through_the_file_of_a_header(self):
        for suffix in ("cpp", "cu"):
            self.assert_knots({"a.h": "", f"a.{suffix}": "a.h b.h", "b.h": "a.h"}, "a -> b -> a")

    def test_through_a_further_file_of_a_header(self):
        self.assert_knots({"a.h": "", "a_more.cpp": "a.h b.h", "b.h": "a.h"}, "a -> b -> a")
        self.assert_knots({"a.h": "", "a_impl.h": "a.h b.h", "b.h": "a.h"}, "a -> b -> a")

    def test_a_header_of_a_longer_name_stands_alone(self):
        self.assert_knots({"a.h": "", "a.cpp": "a.h", "a_more.h": "a.h", "a_more.cpp": "a_more.h", "b.h": "a_more.h"})

    def test_each_of_two_and_those_in_folders(self):
        self.assert_knots({"a.h": "b.h", "b.h": "", "b.cpp": "b.h a.h cuda/k.h", "cuda/k.h": "b.h"}, "a -> b -> a", "b -> cuda/k -> b")

    def test_the_graph_as_text(self):
        files = {"a.h": "", "a.cpp": "a.h c.h", "b.h": "a.h c.h", "c.h": "", "verb.cpp": "b.h a.h"}
        shown = self.planted(files, lambda root: graph.text(root, ["core", "store"]))
        self.assertEqual(shown, "store\n  a: c\n  b: a c\n  verb: a b\n  on their own: c")

    def test_a_document_that_is_behind(self):
        def judge(root):
            said = []
            (root / "docs").mkdir()
            for text in ("# Design\n", f"# Design\n{graph.BEGIN}old\n{graph.END}after\n"):
                (root / "docs/design.md").write_text(text)
                said += graph_violations(root)
            graph.write(root, FLOORS)
            return [*said, *graph_violations(root), (root / "docs/design.md").read_text()]

        self.assertEqual(self.planted({"a.h": "b.h", "b.h": ""}, judge), [
            "docs/design.md: holds no <!-- graph -->",
            "docs/design.md: its graph of the floors is not that of the sources: " + RENEW,
            f"# Design\n{graph.BEGIN}```\nstore\n  a: b\n  on their own: b\n```\n{graph.END}after\n"])


if __name__ == "__main__":
    if sys.argv[1:] == ["--graph"]:
        print(graph.text(ROOT, FLOORS))
    elif sys.argv[1:] == ["--graph", "--write"]:
        graph.write(ROOT, FLOORS)
    else:
        unittest.main()
