"""scripts/plant_errors.py: where an error goes, and what it reads in a report of a test program. No error is planted here."""

import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts"))

import plant_errors  # noqa: E402
from planted_errors import ERRORS  # noqa: E402

PASSED = '<TestCase name="a"><OverallResult success="true"/></TestCase>'


class Planted(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        (self.root / "a.cpp").write_text("x = a + b;\ny = a + b;\nz = 1;\n")

    def test_an_error_takes_the_place_of_its_text(self):
        self.assertEqual(plant_errors.planted(self.root, "a.cpp", "z = 1", "z = 2"), "x = a + b;\ny = a + b;\nz = 2;\n")

    def test_a_text_that_is_not_there_once_is_named(self):
        for file, old, message in (("a.cpp", "z = 3", "a.cpp: no longer has the text\n    z = 3"),
                                   ("a.cpp", "a + b", "a.cpp: has 2 times the text\n    a + b"),
                                   ("b.cpp", "z", "b.cpp is no longer there")):
            with self.subTest(file=file, old=old), self.assertRaises(ValueError) as raised:
                plant_errors.planted(self.root, file, old, "")
            self.assertEqual(str(raised.exception), message)


class Reports(unittest.TestCase):
    def test_the_case_that_failed_is_named(self):
        xml = PASSED + '<TestCase name="b &lt; c"><Expression success="false"><Original>x</Original></Expression></TestCase>'
        self.assertEqual(plant_errors.failed_test(xml), "b < c")

    def test_the_case_that_threw_or_crashed_is_named(self):
        self.assertEqual(plant_errors.failed_test(PASSED + '<TestCase name="b"><Exception filename="f">x</Exception></TestCase>'), "b")
        self.assertEqual(plant_errors.failed_test(PASSED + '<TestCase name="b"><Section name="s">'), "b")

    def test_a_report_without_a_failure_names_none(self):
        self.assertIsNone(plant_errors.failed_test(PASSED))
        self.assertIsNone(plant_errors.failed_test(""))


class List(unittest.TestCase):
    def test_every_error_has_a_name_of_its_own_and_changes_something(self):
        self.assertEqual(len({name for name, _, _, _ in ERRORS}), len(ERRORS))
        for name, file, old, new in ERRORS:
            with self.subTest(name):
                self.assertTrue(file.startswith("src/"))
                self.assertNotEqual(old, new)


if __name__ == "__main__":
    unittest.main()
