#!/usr/bin/env python3
"""Holds the catalogue of errors, docs/errors.md, against the sources: every message in it must be one of the program's.

  scripts/check_errors.py [--root DIR]     print every message that no source has, exit 1 if any
  scripts/check_errors.py --self-test      test the check

A message is the code span in the first cell of a row of a table. "…" stands for what varies. Each part between two of
them must be a part of a string literal in src/ or include/, in which a placeholder of libfmt is a "…", too. Folders whose messages
people meet first must have some in the page.
"""
import argparse
import re
import sys
import unittest
from pathlib import Path

import doc_pages

PAGE = "docs/errors.md"
FOLDERS = ("include", "src")
SUFFIXES = {".h", ".cc"}
VARIES = "…"
SHORTEST = 10  # characters of the longest part, so that a message is found for itself
FEWEST_OF = {"src/config": 10, "src/net": 10, "src/serve": 10, "src/tools/serve": 5}
FEWEST = 50  # messages: fewer are a sign that the page is not read as it is written

TOKEN = re.compile(
    r"""
    (?P<comment>//[^\n]*|/\*.*?\*/)
  | (?P<raw>R"(?P<mark>[^\s()\\]{0,16})\((?P<inner>.*?)\)(?P=mark)")
  | "(?P<string>(?:\\.|[^"\\\n])*)"
  | '(?:\\.|[^'\\\n])+'
  | (?P<space>\s+)
  | (?P<other>\w+|.)
    """,
    re.X | re.S,
)
ESCAPES = {"n": "\n", "t": "\t", "r": "\r", '"': '"', "'": "'", "\\": "\\"}
PLACEHOLDER = re.compile(r"\{[\w.:%<>+-]*\}")
ROW = re.compile(r"^\| *(?P<tick>`+)(?P<message>.+?)(?P=tick) *\|")


def literals_of(text):
    """The string literals of a source. Adjacent ones are one."""
    current = None
    for token in TOKEN.finditer(re.sub(r"^[ \t]*#[ \t]*include.*$", "", text, flags=re.M)):
        if token["comment"] is not None or token["space"] is not None:
            continue
        if token["inner"] is not None:
            part = token["inner"]
        elif token["string"] is not None:
            part = re.sub(r"\\(.)", lambda escape: ESCAPES.get(escape[1], escape[0]), token["string"])
        else:
            if current:
                yield current
            current = None
            continue
        current = (current or "") + part
    if current:
        yield current


def parts_of(message):
    return [part.strip() for part in message.split(VARIES) if part.strip()]


def messages_of(page):
    """(line, message) of every row with a message."""
    for number, line, is_text in doc_pages.lines_of(page):
        row = ROW.match(line) if is_text else None
        if row:
            yield number, row["message"].strip()


def gaps_of(page, literals_in, fewest):
    """Folders of which the page has too few messages. `literals_in(folder)`: those of its sources."""
    for folder, least in fewest.items():
        text = "\0".join(PLACEHOLDER.sub(VARIES, literal) for literal in literals_in(folder))
        count = sum(all(part in text for part in parts_of(message)) for _, message in messages_of(page))
        if count < least:
            yield f"{PAGE}: has {count} messages of {folder}, and {least} are expected at least"


def findings_of(page, literals):
    text = "\0".join(PLACEHOLDER.sub(VARIES, literal) for literal in literals)
    for number, message in messages_of(page):
        parts = parts_of(message)
        if max(map(len, parts), default=0) < SHORTEST:
            yield f"{PAGE}:{number}: too short to be found: {message}"
        for part in parts:
            if part not in text:
                yield f"{PAGE}:{number}: no source has this part of a message: {part}"


class SelfTest(unittest.TestCase):
    SOURCE = r"""
#include "some/header.h"
// "not a literal"
auto text = fmt::format("the file {} has {:.1f} bytes, "  // with a comment between
                        "say \"please\"", file, bytes);
auto raw = R"(write "models" here)";
char quote = '"';
"""

    def findings(self, *messages):
        page = "| message | cause |\n|---|---|\n" + "".join(f"| `{message}` | x |\n" for message in messages)
        return list(findings_of(page, literals_of(self.SOURCE)))

    def test_literals(self):
        self.assertEqual(list(literals_of(self.SOURCE)),
                         ['the file {} has {:.1f} bytes, say "please"', 'write "models" here'])

    def test_messages_are_found(self):
        self.assertEqual(self.findings("the file … has … bytes, say", 'write "models" here', "… bytes, say"), [])

    def test_other_messages_are_not(self):
        self.assertEqual(len(self.findings("the file … had … bytes, say")), 1)
        self.assertEqual(len(self.findings("not a literal")), 1)
        self.assertEqual(len(self.findings("the file")), 1)

    def test_folders_without_messages_are_found(self):
        page = "| `the file … has … bytes, say` | x |\n"
        self.assertEqual(list(gaps_of(page, lambda folder: literals_of(self.SOURCE), {"src/a": 1})), [])
        self.assertEqual(len(list(gaps_of(page, lambda folder: literals_of(self.SOURCE), {"src/a": 2}))), 1)

    def test_double_backticks(self):
        page = "| ``run `x` now, please`` | y |\n"
        self.assertEqual(list(messages_of(page)), [(1, "run `x` now, please")])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parent.parent)
    parser.add_argument("--self-test", action="store_true")
    options = parser.parse_args()
    if options.self_test:
        suite = unittest.defaultTestLoader.loadTestsFromTestCase(SelfTest)
        return 0 if unittest.TextTestRunner().run(suite).wasSuccessful() else 1
    page = (options.root / PAGE).read_text(encoding="utf-8")
    files = [file for folder in FOLDERS for file in sorted((options.root / folder).rglob("*")) if file.suffix in SUFFIXES]
    literals = [literal for file in files for literal in literals_of(file.read_text(encoding="utf-8"))]
    findings = list(findings_of(page, literals))
    findings += gaps_of(page, lambda folder: [literal for file in files if file.is_relative_to(options.root / folder)
                                              for literal in literals_of(file.read_text(encoding="utf-8"))], FEWEST_OF)
    count = len(list(messages_of(page)))
    if count < FEWEST:
        findings.append(f"{PAGE}: only {count} messages were read; at least {FEWEST} are expected")
    print("\n".join(findings + [f"check_errors: {count} messages, {len(findings)} findings"]))
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
