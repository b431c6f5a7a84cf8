"""Writes results: CSV files that name their sources and commands, and the tables and values of the pages."""
import csv
import io
import re
from pathlib import Path

import sources
from studies import SOURCES_OF

COLUMNS_OF_CLAIMS = 7
SOURCES_LINE = "# sources of {study}: {digest}"


class Results:
    """A folder of CSV files and plots, and the tables and values that go between markers of its pages."""

    def __init__(self, folder):
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.tables = {}
        self.values = {}
        self.sources = ""

    def begin(self, study):
        """The results that follow are those of this study, made by the sources as they are now."""
        self.sources = SOURCES_LINE.format(study=study, digest=digest_of(study))

    def csv(self, name, commands, columns, rows):
        """Lines that begin with # say how it was made; then a header and the rows."""
        text = io.StringIO()
        text.write(self.sources + "\n")
        for command in commands:
            text.write(f"# {command}\n")
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows([written(value) for value in row] for row in rows)
        (self.folder / name).write_text(text.getvalue(), encoding="utf-8")

    def table(self, name, columns, rows):
        """The first column is text, the others are numbers."""
        lines = ["| " + " | ".join(columns) + " |", "|---" + "|--:" * (len(columns) - 1) + "|"]
        lines += ["| " + " | ".join(map(str, row)) + " |" for row in rows]
        self.tables[name] = "\n".join(lines)

    def claims(self, name, rows):
        """The table of a paper's claims at the top of its page.

        A row: the claim, the paper's number, ours, the data, the baseline, the verdict (verdicts.py), and the study that
        shows it. A study without measured data leaves out data and baseline.
        """
        rows = [row if len(row) == COLUMNS_OF_CLAIMS else (*row[:3], "–", "–", *row[3:]) for row in rows]
        columns = ("claim of the paper", "the paper", "ours", "data", "baseline", "verdict", "study")
        lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
        lines += [f"| {claim} | {paper} | {ours} | {data} | {baseline} | **{verdict}** | `--only {study}` |"
                  for claim, paper, ours, data, baseline, verdict, study in rows]
        self.tables[name] = "\n".join(lines)

    def value(self, name, text):
        """A figure inside a sentence: `<!--=name-->text<!--/-->`."""
        self.values[name] = str(text)

    def plot(self, name):
        return self.folder / f"{name}.svg"

    def fill_pages(self):
        """Puts tables and values between their markers; without pages, writes all of them to tables.md."""
        pages = sorted(self.folder.glob("*.md"))
        pages = [page for page in pages if page.name != "tables.md"]
        if not pages:
            text = "\n\n".join(f"## {name}\n{table}" for name, table in sorted(self.tables.items()))
            text += "\n\n" + "\n".join(f"{name}: {value}" for name, value in sorted(self.values.items()))
            (self.folder / "tables.md").write_text(text + "\n", encoding="utf-8")
            return
        for page in pages:
            page.write_text(self.filled(page.read_text(encoding="utf-8")), encoding="utf-8")

    def filled(self, text):
        for name, table in self.tables.items():
            begin, end = f"<!-- table {name} -->\n", "<!-- end -->"
            pattern = re.compile(re.escape(begin) + ".*?" + re.escape(end), re.DOTALL)
            text = pattern.sub(lambda _, of=table, at=begin: f"{at}{of}\n{end}", text)
        for name, value in self.values.items():
            begin, end = f"<!--={name}-->", "<!--/-->"
            pattern = re.compile(re.escape(begin) + ".*?" + re.escape(end), re.DOTALL)
            text = pattern.sub(lambda _, of=value, at=begin: f"{at}{of}{end}", text)
        return text


def digest_of(study):
    return sources.digest(SOURCES_OF[study], study)


def written(value):
    """Rounds numbers so that they do not depend on the last bits of a sum."""
    if isinstance(value, bool):
        return int(value)
    return f"{value:.10g}" if isinstance(value, float) else value


def percent(part, whole, digits=1):
    return f"{100 * part / whole:.{digits}f} %" if whole else "–"
