#!/usr/bin/env python3
"""Holds docs/configuration.md against the program: the page is what `gpulet config reference` prints.

  scripts/check_reference.py --program build/release/bin/gpulet          print the differences, exit 1 if any
  scripts/check_reference.py --program build/release/bin/gpulet --fix    write the page
  scripts/check_reference.py --self-test                                 test the check
"""
import argparse
import difflib
import subprocess
import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "configuration.md"


def differences(page, printed):
    return list(difflib.unified_diff(page.splitlines(), printed.splitlines(), str(PAGE.relative_to(ROOT)), "gpulet config reference", lineterm="", n=0))


class SelfTest(unittest.TestCase):
    def test_equal_texts_have_none(self):
        self.assertEqual(differences("a\nb\n", "a\nb\n"), [])

    def test_a_changed_line_is_shown_in_both_forms(self):
        found = differences("a\nb\n", "a\nc\n")
        self.assertIn("-b", found)
        self.assertIn("+c", found)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=Path)
    parser.add_argument("--fix", action="store_true")
    parser.add_argument("--self-test", action="store_true")
    options = parser.parse_args()
    if options.self_test:
        return 0 if unittest.main(argv=[sys.argv[0]], exit=False).result.wasSuccessful() else 1
    if options.program is None:
        parser.error("--program names the gpulet to ask")
    printed = subprocess.run([options.program, "config", "reference"], check=True, capture_output=True, text=True).stdout
    if options.fix:
        PAGE.write_text(printed, encoding="utf-8")
        return 0
    found = differences(PAGE.read_text(encoding="utf-8") if PAGE.exists() else "", printed)
    for line in found:
        print(line)
    if found:
        print(f"check_reference: write the page with scripts/check_reference.py --program {options.program} --fix")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
