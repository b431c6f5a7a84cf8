#!/usr/bin/env python3
"""Holds the environment variables that the programs read against docs/compatibility.md.

  scripts/check_environment.py [--root DIR]     print every variable that only one of them has, exit 1 if any
  scripts/check_environment.py --self-test      test the check

The page has a table "Environment variables". Sources read a variable with getenv(), or with a function of the same file that
calls it; names in lists of such a file count, and so does every literal that begins with GPULET_.
"""
import argparse
import re
import sys
import unittest
from pathlib import Path

from check_errors import FOLDERS, SUFFIXES, literals_of

PAGE = "docs/compatibility.md"
SECTION = "## Environment variables"
NAME = re.compile(r"[A-Z][A-Z0-9_]{2,}")
READS = re.compile(r'\b(?:getenv|environment|environment_variable|variable|envname)\(\s*"([A-Z][A-Z0-9_]+)"')
CONSTANT = re.compile(r'\bk\w*Variable\w*\s*(?:=|\{)\s*"([A-Z][A-Z0-9_]+)"')
ROW = re.compile(r"^\| *(`[^|]+`) *\|")
# A backend sets them for its proxies, whatever its own environment has.
BETWEEN_PROGRAMS = {"GPULET_DEVICE", "GPULET_DEVICE_SMS", "GPULET_EXPECTED_SHARE", "GPULET_SANDBOX", "GPULET_SANDBOX_NETWORK",
                    "CUDA_VISIBLE_DEVICES", "CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT",
                    "OMP_NUM_THREADS", "OMP_WAIT_POLICY", "ORT_DISABLE_TELEMETRY"}
OTHER_NAMES = {"ERR_NVGPUCTRPERM", "PASSIVE"}


def variables_of(source):
    """The variables that a source reads or names."""
    found = set(READS.findall(source)) | set(CONSTANT.findall(source))
    literals = list(literals_of(source))
    found |= {literal for literal in literals if literal.startswith("GPULET_") and NAME.fullmatch(literal)}
    if "getenv(" in source or "environment_variable(" in source:
        found |= {literal for literal in literals if NAME.fullmatch(literal)}
    return found


def documented_in(page):
    """The variables in the first cells of the table."""
    section = page.partition(SECTION)[2].partition("\n## ")[0]
    rows = [ROW.match(line) for line in section.splitlines()]
    return {name for row in rows if row for name in re.findall(r"`([A-Za-z][A-Za-z0-9_]+)`", row[1])}


def findings_of(page, read):
    documented = documented_in(page)
    for name in sorted(read - BETWEEN_PROGRAMS - OTHER_NAMES - documented):
        yield f"{PAGE}: the programs read {name}, which is not in its table"
    for name in sorted(name for name in documented - read if name.isupper()):
        yield f"{PAGE}: no program reads {name}"


class SelfTest(unittest.TestCase):
    def test_variables_are_found(self):
        self.assertEqual(variables_of('a = std::getenv("HOME"); b("GPULET_X"); // "GPULET_Y"\n for (n : {"LC_ALL", "small"})'),
                         {"HOME", "GPULET_X", "LC_ALL"})
        self.assertEqual(variables_of('option->envname("GPULET_T"); f("OTHER_NAME"); kThingVariable = "A_B";'), {"GPULET_T", "A_B"})

    def test_both_sides_are_compared(self):
        page = f"{SECTION}\n\n| variable | of |\n|---|---|\n| `GPULET_A`, `HOME` | x `GPULET_Z` |\n\n## Next\n| `GPULET_Q` | |\n"
        self.assertEqual(list(findings_of(page, {"GPULET_A", "HOME", "GPULET_DEVICE"})), [])
        self.assertEqual(len(list(findings_of(page, {"GPULET_A", "GPULET_Q"}))), 2)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parent.parent)
    parser.add_argument("--self-test", action="store_true")
    options = parser.parse_args()
    if options.self_test:
        suite = unittest.defaultTestLoader.loadTestsFromTestCase(SelfTest)
        return 0 if unittest.TextTestRunner().run(suite).wasSuccessful() else 1
    files = [file for folder in FOLDERS for file in sorted((options.root / folder).rglob("*")) if file.suffix in SUFFIXES]
    read = set().union(*(variables_of(file.read_text(encoding="utf-8")) for file in files))
    findings = list(findings_of((options.root / PAGE).read_text(encoding="utf-8"), read))
    print("\n".join(findings + [f"check_environment: {len(read)} variables, {len(findings)} findings"]))
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
