"""The gates format and lint, on small trees that hold one violation each."""

import contextlib
import io
import json
import pathlib
import shutil
import tempfile
import unittest

import format
import lint

ROOT = pathlib.Path(__file__).resolve().parents[2]


class InFolder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name).resolve()
        for name in (".clang-format", ".clang-tidy"):
            shutil.copy(ROOT / name, self.root)

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    def judge(self, gate, *arguments):
        """The exit status and what was said, without how long it took."""
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            code = gate(self.root, *arguments)
        return code, [line for line in said.getvalue().splitlines() if " files in " not in line]


class Format(InFolder):
    def setUp(self):
        super().setUp()
        self.write("src/core/good.cpp", "int twice(int x) { return 2 * x; }\n")

    def test_a_good_tree_passes(self):
        self.assertEqual(self.judge(format.main), (0, []))

    def test_a_file_that_is_not_formatted_is_named_and_mended(self):
        for suffix in ("cpp", "h", "cu", "cuh"):
            with self.subTest(suffix):
                bad = self.write(f"tests/core/bad.{suffix}", "int one();\nint twice( int x ) { return 2*x; }\n")
                self.assertEqual(self.judge(format.main), (1, [f"tests/core/bad.{suffix}:2: is not as .clang-format says",
                                                               "This mends it: " + format.MEND]))
                self.assertEqual(self.judge(format.main, "--write"), (0, []))
                self.assertEqual(bad.read_text(), "int one();\nint twice(int x) { return 2 * x; }\n")
                self.assertEqual(self.judge(format.main), (0, []))

    def test_many_lines_are_counted(self):
        self.write("src/core/bad.h", "int  a;\n" * 9)
        self.assertEqual(self.judge(format.main)[1][-2], "src/core/bad.h: and 4 more lines")


class Lint(InFolder):
    GOOD = "namespace {\nint own() { return 1; }\n}  // namespace\nint %s() { return own(); }\n"
    FAULT = "int one();\nint nothing(int x) { return x - x; }\n"

    def database(self, **texts):
        entries = []
        for stem, text in texts.items():
            path = self.write(f"src/core/{stem}.cpp", text)
            command = f"g++ -DX='1 2' -I{self.root}/src -Wall -Werror -std=c++20 -include {self.root}/none/pch.hxx -o {stem}.o -c {path}"
            entries.append({"directory": str(self.root), "file": str(path), "command": command})
        self.write("build/compile_commands.json", json.dumps(entries))
        return entries

    def judge_tree(self, *chosen):
        return self.judge(lint.main, self.root / "build", *chosen)

    def test_a_good_tree_passes(self):
        self.database(a=self.GOOD % "a", b=self.GOOD % "b")
        self.assertEqual(self.judge_tree(), (0, []))

    def test_a_fault_is_named_with_its_place(self):
        self.database(a=self.GOOD % "a", b=self.FAULT)
        self.assertEqual(self.judge_tree(), (1, [
            "src/core/b.cpp:2: both sides of operator are equivalent [misc-redundant-expression]",
            "Mend it, then look again: python3 tests/layout/lint.py src/core/b.cpp",
            "Where the check is wrong: // NOLINT(its name), and why."]))
        self.assertEqual(self.judge_tree("src/core/a.cpp"), (0, []))

    def test_files_with_a_name_in_common_are_read_apart(self):
        entries = self.database(a=self.GOOD % "a", b=self.GOOD % "b", c=self.GOOD.replace("own", "its") % "c")
        self.assertEqual([[path.stem for path in files] for _, files in lint.groups(self.root, entries)], [["a", "c"], ["b"]])
        self.assertEqual(lint.groups(self.root, entries)[0][0], ("-DX=1 2", f"-I{self.root}/src", "-std=c++20"))

    def test_files_that_cannot_be_read_as_one_are_read_apart(self):
        own = "static int own() { return 1; }\nint %s() { return own(); }\n"
        self.database(a=own % "a", b=own % "b")
        self.assertEqual(self.judge_tree(), (0, []))

    def test_a_file_that_cannot_be_read_is_named(self):
        self.database(a=self.GOOD % "a", b="int b() { return nothing; }\n")
        code, said = self.judge_tree()
        self.assertEqual((code, said[0]), (1, "src/core/b.cpp:1: use of undeclared identifier 'nothing' [clang-diagnostic-error]"))

    def test_other_floors_are_not_looked_at(self):
        entries = self.database(a=self.GOOD % "a")
        entries[0]["file"] = str(self.write("src/train/a.cpp", self.FAULT))
        self.assertEqual(lint.groups(self.root, entries), [])


if __name__ == "__main__":
    unittest.main()
