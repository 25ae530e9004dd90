#!/usr/bin/env python3
"""PyYAML reads tests/golden/texts.yaml, which the program's writer made, as it was meant; texts_pyyaml.yaml is PyYAML's own, for the
program's reader (both in tests/config/texts.cpp). Skipped where there is no PyYAML: nothing of the tool needs it."""

import os
import pathlib
import unittest

try:
    import yaml
except ImportError:
    yaml = None

GOLDEN = pathlib.Path(os.environ["PALIMPSEST_SOURCE_DIR"]) / "tests/golden"
POINTS = [*range(0x100), 0x100, 0x200B, 0x2028, 0x2029, 0xD7FF, 0xE000, 0xFEFF, 0xFFFD, 0xFFFE, 0xFFFF, 0x1F600, 0x10FFFF]
WORDS = [
    "", "null", "Null", "NULL", "~", "true", "True", "TRUE", "false", "yes", "Yes", "no", "on", "Off", "y", "n", "1e3", "1.0", "-3", "0x10", "010",
    "0o17", "1_000", ".inf", "-.inf", ".nan", "inf", "0..3", "12:30", "2001-01-01", "---", "...", "--- a", "- a", "? a", ": a", "a: b", "a:", "a #b",
    "#a", "<<", "!a", "&a", "*a", "%a", "@a", "'a'", '"a"', "\\n", "\\", "{a: b}", "[a]", "a, b", "|", ">", "  a", "a  ", "a  b", "a\n", "\na",
    "a\n\nb", "a\n b\n", "a\r\nb", "a\t\tb", "é ß", "it's \"so\"", "a" * 500, "a b " * 100,
]


def texts():
    all_texts = [text for point in POINTS for c in (chr(point),) for text in (c, f"a{c}b", f"{c}b{c}")]
    return list(dict.fromkeys(all_texts + WORDS))


def pyyaml_texts():
    """A text of line ends alone, as PyYAML writes it, is refused by the program's reader."""
    return [text for text in texts() if text != "\n"]


@unittest.skipIf(yaml is None, "no PyYAML")
class Texts(unittest.TestCase):
    def test_what_the_program_wrote(self):
        found = yaml.safe_load((GOLDEN / "texts.yaml").read_text(encoding="utf-8"))
        self.assertEqual(list(found.items()), [(text, text) for text in texts()])

    def test_what_pyyaml_wrote(self):
        path = GOLDEN / "texts_pyyaml.yaml"
        if os.environ.get("PALIMPSEST_REGENERATE"):
            parts = []
            for name, style in (("plain", None), ("double", '"'), ("single", "'")):
                body = yaml.safe_dump(pyyaml_texts(), default_style=style, width=60)
                parts.append(f"{name}:\n" + "".join(f"  {line}\n" for line in body.splitlines()))
            path.write_text("".join(parts), encoding="utf-8")
        for style in yaml.safe_load(path.read_text(encoding="utf-8")).values():
            self.assertEqual(style, pyyaml_texts())


if __name__ == "__main__":
    unittest.main()
