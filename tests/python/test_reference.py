#!/usr/bin/env python3
"""The pages of docs/reference are what the program says now, and lead where they say."""

import difflib
import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

BINARY = os.environ["PALIMPSEST_BINARY"]
SOURCE = Path(os.environ["PALIMPSEST_SOURCE_DIR"])
PAGES = SOURCE / "docs/reference"
sys.path.insert(0, str(SOURCE / "scripts"))

import reference

JOBS = reference.JOBS


def anchors(text):
    """Of the headings of a page, as code hosts name them."""
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in re.findall(r"^#+ (.*)$", text, re.MULTILINE)}


class Pages(unittest.TestCase):
    def test_are_what_the_program_says(self):
        with tempfile.TemporaryDirectory(prefix="palimpsest-reference-") as folder:
            call = [sys.executable, SOURCE / "scripts/reference.py", "--binary", BINARY, folder]
            result = subprocess.run(call, capture_output=True, text=True, timeout=300)
            self.assertEqual(result.returncode, 0, result.stderr)
            made = {path.name: path.read_text(encoding="utf-8") for path in Path(folder).iterdir()}
        kept = {path.name: path.read_text(encoding="utf-8") for path in PAGES.iterdir()}
        changes = []
        for name in sorted(made.keys() | kept.keys()):
            old, new = (pages.get(name, "").splitlines() for pages in (kept, made))
            changes += difflib.unified_diff(old, new, f"docs/reference/{name}", "what the program says", lineterm="", n=0)
        self.assertEqual(changes, [], "\nthe program says something else; scripts/reference.py writes the pages anew\n" + "\n".join(changes[:60]))

    def test_every_section_of_a_config_has_a_page(self):
        config = SOURCE / "configs/quickstart.yaml"
        out = subprocess.run([BINARY, "sweep", config, "--print-config"], capture_output=True, text=True, timeout=120).stdout
        top = set(re.findall(r"^(\w+):", out, re.MULTILINE))
        self.assertLessEqual({"model", "train", "run"}, top)
        self.assertEqual(top - {"name", "seed", "task", "mixers"} - reference.SECTIONS.keys(), set())

    def test_links_lead_somewhere(self):
        for page in PAGES.iterdir():
            text = page.read_text(encoding="utf-8")
            for path, anchor in re.findall(r"\]\((?!https:)([^)#]*)#?([^)]*)\)", text):
                with self.subTest(page=page.name, link=f"{path}#{anchor}"):
                    there = (page.parent / path).resolve() if path else page
                    self.assertTrue(there.is_file())
                    if anchor:
                        self.assertIn(anchor, anchors(there.read_text(encoding="utf-8")))

    def test_rows_have_the_columns_of_their_table(self):
        for page in PAGES.iterdir():
            for block in re.findall(r"(?:^\|.*\n)+", page.read_text(encoding="utf-8"), re.MULTILINE):
                widths = {len(re.findall(r"(?<!\\)\|", row)) for row in block.splitlines()}
                self.assertEqual(len(widths), 1, f"{page.name}\n{block}")


class Script(unittest.TestCase):
    def test_a_program_that_is_not_there(self):
        result = subprocess.run([SOURCE / "scripts/reference.py", "--binary", "no/palimpsest"], capture_output=True, text=True)
        self.assertEqual(result.returncode, 1)
        self.assertRegex(result.stderr, r"^reference\.py: no program 'no/palimpsest' \(No such file or directory\); scripts/build\.sh release .*\n$")

    def test_pages_of_what_is_gone_are_removed_and_others_stay(self):
        with tempfile.TemporaryDirectory(prefix="palimpsest-reference-") as folder:
            folder = Path(folder)
            (folder / "old.md").write_text(reference.page("Old", "text"), encoding="utf-8")
            (folder / "notes.md").write_text("# Mine\n", encoding="utf-8")
            reference.write(folder, {"new.md": reference.page("New", "text")})
            self.assertEqual(sorted(path.name for path in folder.iterdir()), ["new.md", "notes.md"])

    def test_what_a_meaning_says_is_no_markup(self):
        self.assertEqual(reference.prose("a * b < c | _x_ of x_t~ [1] $n$"), r"a \* b \< c \| \_x\_ of x_t\~ \[1\] \$n\$")
        self.assertEqual(reference.prose("0: train.steps counts. Then --threads 1 or run.threads=1, too"),
                         "0: `train.steps` counts. Then `--threads` 1 or `run.threads=1`, too")
        self.assertEqual(reference.prose("(arXiv 2406.06484)"), "([arXiv 2406.06484](https://arxiv.org/abs/2406.06484))")

    def test_an_option_with_all_that_may_be_said_of_it(self):
        option = {"name": "norm", "type": "word", "default": "l2", "allowed": "l2 | none", "meaning": "of q|k", "used_where": "beta is true",
                  "identity": False, "cautions": {"none": "it grows"}}
        plain = {**option, "name": "taps", "type": "integer", "default": "4", "allowed": "0 to 64", "used_where": "", "identity": True, "cautions": {}}
        self.assertEqual(reference.options_table([option, plain]).splitlines()[2:], [
            r"| `norm` | `l2`, `none` | `l2` | no | of q\|k. *Counts where beta is true*. *Caution* with `none`: it grows |",
            r"| `taps` | integer, 0 to 64 | `4` | yes | of q\|k |"])
        self.assertNotIn("part of the id", reference.options_table([plain]))

    def test_help_of_older_and_newer_versions_of_CLI11(self):
        wanted = {"names": ["-j", "--jobs"], "type": "integer, 1 to 64", "default": "1", "required": False, "several": False, "excludes": []}
        for left in ("-j,--jobs INT:INT in [1 - 64]=1", "-j,--jobs INT:INT in [1 - 64] [1]", "-j,     --jobs INT:INT in [1 - 64] [1]"):
            self.assertEqual(reference.entry_of(left), wanted)
        for left, kind, default in [("--progress TEXT:{auto,never}=auto", "`auto`, `never`", "auto"),
                                    ("--progress TEXT:{auto,never} [auto]", "`auto`, `never`", "auto"),
                                    ("--batch INT:POSITIVE=64", "integer, at least 1", "64"), ("--batch INT:POSITIVE [64]", "integer, at least 1", "64"),
                                    ("--form TEXT:{a,b} ...", "`a`, `b`, several", ""), ("CONFIG TEXT REQUIRED", "text", ""), ("--json", "", "")]:
            with self.subTest(left):
                entry = reference.entry_of(left)
                self.assertEqual((entry["type"], entry["default"], entry["required"]), (kind, default, left.endswith("REQUIRED")))
        self.assertEqual(reference.entry_of("--along TEXT:{a,b} Excludes: --segments")["excludes"], ["--segments"])
        self.assertEqual(reference.entry_of("--json Excludes:--markdown")["excludes"], ["--markdown"])
        self.assertRaisesRegex(reference.PagesError, "cannot read it", reference.entry_of, "--x what is this?")
        below = " " * reference.COLUMN
        before, parts = reference.parts_of_help(
            "does it\nUsage: palimpsest it [OPTIONS]\n\nOPTIONS:\n  -h,--help                   Print this\n"
            f"  --progress TEXT:{{auto,never}}=auto\n{below}how it goes,\n{below}line by line\n"
            "  --json Excludes: --markdown as JSON\n\nExit codes:\n  0    all good\n  75   stopped by SIGTERM with\na checkpoint\n\nResults go to stdout.\n")
        self.assertEqual(before[0], "does it")
        self.assertEqual(parts["Options"], [["-h,--help", "Print this"], ["--progress TEXT:{auto,never}=auto", "how it goes, line by line"],
                                            ["--json Excludes: --markdown", "as JSON"]])
        self.assertEqual(parts["Exit codes"], [["0", "all good"], ["75", "stopped by SIGTERM with a checkpoint"]])


if __name__ == "__main__":
    unittest.main()
