"""Writes results: CSV files with the command that made them, and Markdown tables into a page."""
import csv
import io
import re
from pathlib import Path


class Results:
    """A folder of CSV files and plots, and the tables that go between markers of its README.md."""

    def __init__(self, folder):
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.tables = {}

    def csv(self, name, commands, columns, rows):
        """Lines that begin with # say how it was made; then a header and the rows."""
        text = io.StringIO()
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

    def plot(self, name):
        return self.folder / f"{name}.svg"

    def fill_page(self, name="README.md"):
        """Puts each table between its markers in the page; without a page, writes all of them to tables.md."""
        page = self.folder / name
        if not page.is_file():
            text = "\n\n".join(f"## {name}\n{table}" for name, table in sorted(self.tables.items()))
            (self.folder / "tables.md").write_text(text + "\n", encoding="utf-8")
            return
        text = page.read_text(encoding="utf-8")
        for name, table in self.tables.items():
            begin, end = f"<!-- table {name} -->\n", "<!-- end -->"
            pattern = re.compile(re.escape(begin) + ".*?" + re.escape(end), re.DOTALL)
            text = pattern.sub(lambda _: f"{begin}{table}\n{end}", text)
        page.write_text(text, encoding="utf-8")


def written(value):
    """Rounds numbers so that they do not depend on the last bits of a sum."""
    if isinstance(value, bool):
        return int(value)
    return f"{value:.10g}" if isinstance(value, float) else value


def percent(part, whole, digits=1):
    return f"{100 * part / whole:.{digits}f} %" if whole else "–"
