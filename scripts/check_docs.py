#!/usr/bin/env python3
"""Checks the documentation: links, mentions of pages and sections, also in sources, the navigation, and llms.txt.

  scripts/check_docs.py [--root DIR]     print every finding, exit 1 if any
  scripts/check_docs.py --self-test      test the checks

- A relative link leads to a file, and its anchor to a heading of that page. So does a mention of a page, such as
  docs/guide.md, "Clients" (scripts/doc_pages.py), in a page or in a comment or text of a source.
- Every page of docs/ is in the navigation of mkdocs.yml, every page there exists, and none is there twice.
- A table begins after an empty line, a heading or a comment.
- A guide (docs/guides/) has 60 to 150 lines.
- A test that docs/security.md names beside its program, such as `http`: `Framing` or `Framing.Case`, is in tests/.
- docs/metrics.md has the metrics of the sources, and no others.
- llms.txt has the form of llmstxt.org and lists the pages of the navigation, each with a description.
"""
import argparse
import re
import sys
import unittest
from pathlib import Path

import doc_pages

# Pages that are not on the site, but have links and mentions.
ELSEWHERE = ["packaging/bundle/README.md"]
GUIDE_LINES = range(60, 151)
LLMS_LINE = re.compile(r"^- \[(?P<title>[^\]]+)\]\((?P<path>[^)]+)\): (?P<text>.+)$")


def link_findings(page, text, anchors, exists):
    """(line, what) of links and mentions that lead nowhere. `anchors`: of each page. `exists(path)`: of any file."""

    def missing(path, anchor, shown):
        if not exists(path):
            return f"{shown}: there is no {path}"
        if anchor and path in anchors and anchor not in anchors[path]:
            return f"{shown}: {path} has no such section"
        return None

    for number, line, is_text in doc_pages.lines_of(text):
        if not is_text:
            continue
        for link in doc_pages.LINK.finditer(doc_pages.without_code(line)):
            if doc_pages.is_relative(link["target"]):
                path, anchor = doc_pages.target_of(page, link["target"])
                what = missing(path, anchor, link["target"])
                if what:
                    yield number, what
        for mention in doc_pages.mentions_of(line):
            what = missing(mention.path, doc_pages.slug(mention.section), f"{mention.path} {mention.section}".strip())
            if what:
                yield number, what


SOURCE_FOLDERS = ["bench", "include", "proto", "src", "tests"]
SOURCE_SUFFIXES = {".cc", ".h", ".proto"}
# A comment of several lines, or literals that the compiler joins; or a character, so that '"' begins no literal.
SOURCE_TEXT = re.compile(r"""//[^\n]*(?:\n[ \t]*//[^\n]*)*|"(?:\\.|[^"\\\n])*"(?:\s*"(?:\\.|[^"\\\n])*")*|'(?:\\.|[^'\\\n])'""")


def texts_of_source(source):
    """(number of the first line, text): comments and string literals, each on one line."""
    for found in SOURCE_TEXT.finditer(source):
        text = found[0]
        if text.startswith("//"):
            text = " ".join(line.strip().lstrip("/").strip() for line in text.splitlines())
        elif text.startswith('"'):
            text = re.sub(r'"\s*"', "", text[1:-1]).replace('\\"', '"')
        else:
            continue
        yield source.count("\n", 0, found.start()) + 1, text


def source_findings(source, anchors_of, exists):
    """(line, what) of mentions that lead nowhere. `anchors_of(path)`: of any page."""
    for number, text in texts_of_source(source):
        for mention in doc_pages.mentions_of(text):
            shown = f"{mention.path} {mention.section}".strip()
            if not exists(mention.path):
                yield number, f"{shown}: there is no {mention.path}"
            elif mention.section and doc_pages.slug(mention.section) not in anchors_of(mention.path):
                yield number, f"{shown}: {mention.path} has no such section"


NAMED_TESTS = re.compile(r"`[a-z_]+`: (?P<tests>`[A-Z]\w+(?:\.\w+)?`(?:, `[A-Z]\w+(?:\.\w+)?`)*)")
DEFINED_TEST = re.compile(r"\b(?:TYPED_TEST(?:_P)?|TEST(?:_[FP])?|RC_GTEST(?:_FIXTURE)?_PROP)\(\s*(\w+),\s*(\w+)")


def test_findings(text, sources):
    """(line, what) of tests that no source in `sources` defines."""
    defined = set()
    for source in sources:
        for suite, case in DEFINED_TEST.findall(source):
            defined.update((suite, f"{suite}.{case}"))
    for number, line in enumerate(text.splitlines(), 1):
        for named in NAMED_TESTS.finditer(line):
            for test in re.findall(r"`([^`]+)`", named["tests"]):
                if test not in defined:
                    yield number, f"there is no test {test}"


METRICS_PAGE = "docs/metrics.md"
METRIC_FOLDERS = ["include/gpulet/serve/values", "src/frontend/observe"]
METRIC = re.compile(r'"((?:gpulet|nv)_[a-z0-9_]+)"')
DOCUMENTED_METRIC = re.compile(r"`((?:gpulet|nv)_[a-z0-9_]+)")


def metric_findings(page, sources):
    """Metrics that only the page or only the sources have."""
    documented = set(DOCUMENTED_METRIC.findall(page))
    exported = {name for source in sources for name in METRIC.findall(source)}
    for name in sorted(exported - documented):
        yield f"{METRICS_PAGE}: lacks {name}"
    for name in sorted(documented - exported):
        yield f"{METRICS_PAGE}: there is no metric {name}"


def table_findings(text):
    """Tables right after a code block or a list: MkDocs does not see them."""
    lines = list(doc_pages.lines_of(text))
    for (_, before, before_is_text), (number, _, is_text), (_, rule, _) in zip(lines, lines[1:], lines[2:]):
        if is_text and before.strip() and not (before_is_text and before.startswith(("#", "<!--"))) and re.match(r" *\|[-:| ]+\|$", rule):
            yield number, "a table needs an empty line before it"


def nav_findings(entries, pages):
    """`pages`: those of docs/."""
    paths = [entry.path for entry in entries]
    for path in sorted(set(pages) - set(paths)):
        yield f"mkdocs.yml: nav lacks {path}"
    for path in sorted({path for path in paths if paths.count(path) > 1}):
        yield f"mkdocs.yml: nav has {path} more than once"


def guide_findings(pages):
    for path, text in sorted(pages.items()):
        lines = len(text.splitlines())
        if path.startswith("docs/guides/") and lines not in GUIDE_LINES:
            yield f"{path}: has {lines} lines; a guide has {GUIDE_LINES.start} to {GUIDE_LINES.stop - 1}"


def llms_findings(text, entries):
    lines = [line for line in text.splitlines() if line.strip()]
    if not lines or not re.match(r"# \S", lines[0]):
        yield "llms.txt: the first line must be `# NAME`"
    if len(lines) < 2 or not lines[1].startswith("> "):
        yield "llms.txt: a summary must follow the name: `> TEXT`"
    listed = []
    for line in lines[2:]:
        if line.startswith("#") and not line.startswith("## "):
            yield f"llms.txt: sections are `## NAME`: {line}"
        if line.startswith("- "):
            link = LLMS_LINE.match(line)
            if link:
                listed.append(link["path"])
            else:
                yield f"llms.txt: not `- [TITLE](PATH): DESCRIPTION`: {line}"
    expected = [entry.path for entry in entries]
    for path in expected:
        if path not in listed:
            yield f"llms.txt: lacks {path}, which is in the navigation"
    for path in listed:
        if path not in expected:
            yield f"llms.txt: {path} is not in the navigation"
        elif listed.count(path) > 1:
            yield f"llms.txt: {path} is listed more than once"


def of_sources(root):
    """The findings in comments and texts of all sources."""
    findings, known = [], {}

    def anchors_of(path):
        if path not in known:
            known[path] = {doc_pages.slug(heading) for heading in doc_pages.headings_of((root / path).read_text(encoding="utf-8"))}
        return known[path]

    for folder in SOURCE_FOLDERS:
        for file in sorted((root / folder).rglob("*")):
            if file.suffix in SOURCE_SUFFIXES and file.is_file():
                of_file = source_findings(file.read_text(encoding="utf-8"), anchors_of, lambda path: (root / path).is_file())
                findings += [f"{file.relative_to(root)}:{line}: {what}" for line, what in of_file]
    return findings


def check(root):
    entries = doc_pages.read_nav((root / "mkdocs.yml").read_text(encoding="utf-8"))
    findings = []
    paths = [entry.path for entry in entries] + ELSEWHERE
    absent = [path for path in paths if not (root / path).is_file()]
    findings += [f"mkdocs.yml: there is no {path}" for path in absent]
    pages = doc_pages.read_pages(root, [path for path in dict.fromkeys(paths) if path not in absent])
    anchors = {path: {doc_pages.slug(heading) for heading in doc_pages.headings_of(text)} for path, text in pages.items()}
    for path, text in pages.items():
        of_page = [*link_findings(path, text, anchors, lambda target: (root / target).exists()), *table_findings(text)]
        findings += [f"{path}:{line}: {what}" for line, what in of_page]
    sources = [file.read_text(encoding="utf-8") for file in (root / "tests").rglob("*.cc")]
    findings += of_sources(root)
    security = "docs/security.md"
    findings += [f"{security}:{line}: {what}" for line, what in test_findings(pages.get(security, ""), sources)]
    of_metrics = [file.read_text(encoding="utf-8") for folder in METRIC_FOLDERS for file in sorted((root / folder).iterdir()) if file.is_file()]
    findings += metric_findings(pages.get(METRICS_PAGE, ""), of_metrics)
    of_docs = [str(file.relative_to(root)) for file in sorted((root / "docs").rglob("*.md"))]
    findings += nav_findings(entries, of_docs)
    findings += guide_findings(pages)
    findings += llms_findings((root / "llms.txt").read_text(encoding="utf-8"), entries)
    return len(pages), findings


class SelfTest(unittest.TestCase):
    NAV = "site_name: x\nnav:\n  - Overview: README.md\n  - Start:\n    - Guide: docs/guide.md\nplugins: []\n"

    def links(self, text, page="docs/a.md"):
        anchors = {"docs/a.md": {"one"}, "docs/b.md": {"two-words"}}
        return [what for _, what in link_findings(page, text, anchors, lambda path: path in anchors)]

    def test_navigation(self):
        entries = doc_pages.read_nav(self.NAV)
        self.assertEqual([(entry.section, entry.path) for entry in entries], [("", "README.md"), ("Start", "docs/guide.md")])
        self.assertEqual(list(nav_findings(entries, ["docs/guide.md"])), [])
        self.assertEqual(len(list(nav_findings(entries, ["docs/new.md"]))), 1)
        self.assertEqual(len(list(nav_findings(entries + entries[:1], []))), 1)

    def test_links(self):
        self.assertEqual(self.links("[b](b.md) [b](b.md#two-words) [a](#one) [x](https://x.example/y)"), [])
        self.assertEqual(len(self.links("[c](c.md)")), 1)
        self.assertEqual(len(self.links("[b](b.md#three)")), 1)
        self.assertEqual(len(self.links("[a](#two)")), 1)
        self.assertEqual(self.links("`[c](c.md)`\n```\n[c](c.md)\n```"), [])
        self.assertEqual(len(self.links("[b](../docs/b.md#one)", "docs/guides/g.md")), 1)

    def test_mentions(self):
        self.assertEqual(self.links('`docs/b.md`, docs/b.md, "Two words", ("Two words" in docs/b.md)'), [])
        self.assertEqual(len(self.links("docs/c.md")), 1)
        self.assertEqual(len(self.links('`docs/b.md`, section "One"')), 1)
        self.assertEqual(len(self.links('"One" in docs/b.md')), 1)

    def in_source(self, source):
        anchors = {"docs/a.md": {"one"}, "docs/b.md": {"two-words"}}
        return [line for line, _ in source_findings(source, lambda path: anchors[path], lambda path: path in anchors)]

    def test_mentions_in_sources(self):
        self.assertEqual(self.in_source('// See docs/a.md, "One", and docs/b.md ("Two\n  // words").\nint a;  // docs/b.md, "Two words"\n'), [])
        self.assertEqual(self.in_source('int a;\n// docs/c.md\n'), [2])
        self.assertEqual(self.in_source('// docs/a.md ("Two")\n'), [1])
        self.assertEqual(self.in_source('// docs/b.md,\n// "Three\n// words"\n'), [1])
        self.assertEqual(self.in_source('f(\n"docs/b.md, \\"Two "\n"words\\"");\n'), [])
        self.assertEqual(self.in_source('f(\n"docs/b.md, \\"Three "\n"words\\"");\n'), [2])
        self.assertEqual(self.in_source("char a = '\"';  // docs/a.md, \"Two\"\n"), [1])

    def test_headings(self):
        self.assertEqual(doc_pages.slug("`green`, and [more](x.md)"), "green-and-more")
        self.assertEqual(doc_pages.headings_of("# A\n```\n# no\n```\n## B"), ["A", "B"])

    def test_mentions_become_links(self):
        paths = {"docs/a.md", "docs/b.md"}

        def linked(line, page="docs/a.md"):
            return doc_pages.link_mentions(page, line, paths).rstrip("\n")

        self.assertEqual(linked("see `docs/b.md`."), "see [`docs/b.md`](../docs/b.md).")
        self.assertEqual(linked('(docs/b.md, "Two words")'), '([docs/b.md](../docs/b.md#two-words), "Two words")')
        self.assertEqual(linked("docs/b.md", "README.md"), "[docs/b.md](docs/b.md)")
        for line in ("docs/a.md", "docs/other.md", "[b](docs/b.md)", "end of b](docs/b.md)", "# docs/b.md"):
            self.assertEqual(linked(line), line)

    def test_lists_are_indented(self):
        def indented(text):
            return doc_pages.indent_lists(text).splitlines()

        self.assertEqual(indented("text\n- one\n  more\n\n  ```\n  code\n  ```\n\nend"),
                         ["text", "", "- one", "    more", "", "    ```", "    code", "    ```", "", "end"])
        self.assertEqual(indented("1. one\n   - two\n     more"), ["1. one", "    - two", "        more"])
        self.assertEqual(indented("```\n- code\n```"), ["```", "- code", "```"])

    def test_tables(self):
        self.assertEqual(list(table_findings("a\n\n| b |\n|---|\n| c |\n")), [])
        self.assertEqual(len(list(table_findings("```\na\n```\n| b |\n|---|\n"))), 1)

    def test_named_tests(self):
        sources = ["TEST_F(Framing, Case) {}\nRC_GTEST_PROP(Other, Holds, ())\n"]
        self.assertEqual(list(test_findings("| x | `http`: `Framing`, `Framing.Case`; `y`: `Other.Holds` |", sources)), [])
        self.assertEqual(len(list(test_findings("`http`: `Framing.Gone`, `Absent`", sources))), 2)
        self.assertEqual(list(test_findings("`PATH` and `Host`: text", sources)), [])

    def test_metrics(self):
        sources = ['{"gpulet_a_total", "Total.", kCounter}', 'add("nv_b", x)']
        self.assertEqual(list(metric_findings("| `gpulet_a_total{kind}`, `nv_b` |", sources)), [])
        self.assertEqual(len(list(metric_findings("`gpulet_a_total`", sources))), 1)
        self.assertEqual(len(list(metric_findings("`gpulet_a_total`, `nv_b`, `nv_c`", sources))), 1)

    def test_guides(self):
        self.assertEqual(list(guide_findings({"docs/guides/a.md": "x\n" * 60, "docs/b.md": "x"})), [])
        self.assertEqual(len(list(guide_findings({"docs/guides/a.md": "x\n" * 59}))), 1)

    def test_llms(self):
        entries = doc_pages.read_nav(self.NAV)
        good = "# x\n\n> What it is.\n\n## Start\n\n- [A](README.md): a\n- [B](docs/guide.md): b\n"
        self.assertEqual(list(llms_findings(good, entries)), [])
        self.assertEqual(len(list(llms_findings(good.replace("- [A](README.md): a\n", ""), entries))), 1)
        self.assertEqual(len(list(llms_findings(good.replace(": b", ""), entries))), 2)
        self.assertEqual(len(list(llms_findings(good.replace("> ", ""), entries))), 1)
        self.assertEqual(len(list(llms_findings(good + "- [C](c.md): c\n", entries))), 1)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parent.parent)
    parser.add_argument("--self-test", action="store_true")
    options = parser.parse_args()
    if options.self_test:
        suite = unittest.defaultTestLoader.loadTestsFromTestCase(SelfTest)
        return 0 if unittest.TextTestRunner().run(suite).wasSuccessful() else 1
    pages, findings = check(options.root)
    print("\n".join(findings + [f"check_docs: {pages} pages, {len(findings)} findings"]))
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
