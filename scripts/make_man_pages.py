#!/usr/bin/env python3
"""Makes manual pages from the --help of programs: one per program and one per command.

  scripts/make_man_pages.py --out DIR --version V [--gzip] --programs PROGRAM... [--written PAGE...]
  scripts/make_man_pages.py --self-test

Commands become PROGRAM-COMMAND.1; daemons (programs without commands) PROGRAM.8. --written pages are copied. --gzip
compresses all pages reproducibly.
"""
import argparse
import gzip
import re
import subprocess
import sys
import unittest
from pathlib import Path

ENTRY = re.compile(r"^  (\S.*?)(?:\s{2,}(\S.*))?$")  # "  --name TEXT     what it is", or the name alone
CONTINUED = re.compile(r"^\s{20,}(\S.*)$")


def parse(text):
    """Parses a --help: (description, usage, {section: [(name, text)]}, footer)."""
    description, usage, sections, footer = [], "", {}, []
    section = None
    for line in text.splitlines():
        heading = re.fullmatch(r"(\S.*):", line)
        entry, continued = ENTRY.match(line), CONTINUED.match(line)
        if line.startswith("Usage: "):
            usage = line[len("Usage: "):]
        elif heading:
            section = sections.setdefault(heading.group(1), [])
        elif section is not None and continued and section:
            section[-1] = (section[-1][0], (section[-1][1] + " " + continued.group(1)).strip())
        elif section is not None and entry:
            section.append((entry.group(1), entry.group(2) or ""))
        elif line.strip():
            (footer if usage else description).append(line.strip())
    return " ".join(description), usage, sections, " ".join(footer)


def escaped(text):
    """Escapes text for roff."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return "\\&" + text if text[:1] in (".", "'") else text


def page(words, section, text, version):
    """The page of a program or command; `words` are its name's parts."""
    description, usage, sections, footer = parse(text)
    name = "-".join(words)
    lines = [f'.TH "{name.upper()}" "{section}" "" "gpulet {version}" "gpulet"', ".SH NAME",
             f"{escaped(name)} \\- {escaped(re.sub('^' + re.escape(name) + ': ', '', description).rstrip('.'))}",
             ".SH SYNOPSIS", f".B {escaped(' '.join(words))}"]
    rest = usage
    for word in words:
        rest = re.sub(r"^\S*" + re.escape(word) + r"\s*", "", rest)
    lines += [escaped(rest)] if rest else []
    for heading, entries in sections.items():
        lines.append(f".SH {heading.upper()}")
        for entry, told in entries:
            names = f"{name}-{entry}" if heading == "Subcommands" else entry
            lines += [".TP", f".B {escaped(names)}" + ("(1)" if heading == "Subcommands" else ""), escaped(told)]
    if footer:
        lines += [".SH NOTES", escaped(footer)]
    return "\n".join(lines) + "\n"


def help_of(program, words):
    return subprocess.run([program, *words, "--help"], check=True, stdout=subprocess.PIPE, text=True).stdout


def put_plain(file, text):
    file.write_text(text, encoding="utf-8")


def put_gzip(file, text):
    """Reproducible gzip: without time and file name."""
    with open(f"{file}.gz", "wb") as stream, gzip.GzipFile("", "wb", 9, stream, mtime=0) as packed:
        packed.write(text.encode())


def write_pages(program, words, options, put):
    text = help_of(program, words)
    commands = [name for name, _ in parse(text)[2].get("Subcommands", [])]
    section = 1 if commands or words else 8
    all_words = [Path(program).name, *words]
    put(options.out / f"{'-'.join(all_words)}.{section}", page(all_words, section, text, options.version))
    for command in commands:
        write_pages(program, [*words, command], options, put)


class SelfTest(unittest.TestCase):
    HELP = ("send a workload\nUsage: tool load [OPTIONS] name\n\nPositionals:\n  name TEXT REQUIRED          which\n\n"
            "Options:\n  -h,--help                   Print this\n  --a-long-name TEXT=127.0.0.1:7000\n"
            "                              the address\n\nSubcommands:\n  now                         at once\n\nEnds with 1.\n")

    def test_reads_every_part(self):
        description, usage, sections, footer = parse(self.HELP)
        self.assertEqual((description, usage, footer), ("send a workload", "tool load [OPTIONS] name", "Ends with 1."))
        self.assertEqual(sections["Positionals"], [("name TEXT REQUIRED", "which")])
        self.assertEqual(sections["Options"][1], ("--a-long-name TEXT=127.0.0.1:7000", "the address"))
        self.assertEqual(sections["Subcommands"], [("now", "at once")])

    def test_a_page_has_the_parts_that_man_looks_for(self):
        text = page(["tool", "load"], 1, self.HELP, "1.0")
        self.assertIn("\ntool\\-load \\- send a workload\n", text)
        self.assertIn("\n.B tool load\n[OPTIONS] name\n", text)
        self.assertIn("\n.B tool\\-load\\-now(1)\nat once\n", text)

    def test_nothing_begins_a_request_by_chance(self):
        self.assertEqual(escaped(".x\\y"), "\\&.x\\ey")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--version", default="")
    parser.add_argument("--self-test", action="store_true")
    parser.add_argument("--gzip", action="store_true")
    parser.add_argument("--programs", nargs="*", default=[], metavar="PROGRAM")
    parser.add_argument("--written", nargs="*", default=[], type=Path, metavar="PAGE")
    options = parser.parse_args()
    if options.self_test:
        return 0 if unittest.main(argv=[sys.argv[0]], exit=False).result.wasSuccessful() else 1
    if not options.out or not (options.programs or options.written):
        parser.error("--out and programs or written pages are needed")
    options.out.mkdir(parents=True, exist_ok=True)
    put = put_gzip if options.gzip else put_plain
    for program in options.programs:
        write_pages(program, [], options, put)
    for file in options.written:
        put(options.out / file.name, file.read_text(encoding="utf-8"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
