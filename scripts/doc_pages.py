"""The pages of the documentation: the navigation of mkdocs.yml, the links, mentions and sections of a page, and a page as
MkDocs reads it.

Used by scripts/check_docs.py and scripts/make-site. Needs nothing beside Python.

A link is `[text](path#section)`, relative to its page. A mention is the path of a page from the root of the repository,
in backticks or plain: `docs/guide.md`, docs/guide.md, also with a section: docs/guide.md, "Clients".
"""
import re
from pathlib import Path, PurePosixPath
from typing import NamedTuple

FENCE = re.compile(r"^ *(```+|~~~+)")
LINK = re.compile(r"(?<!`)\[(?P<text>(?:[^\[\]]|\[[^\]]*\])*)\]\((?P<target>[^)\s]+)\)")
MENTION = re.compile(r"(?P<tick>`?)(?<![\w/.\[-])(?P<path>(?:[A-Za-z0-9_-]+/)+[A-Za-z0-9_-]+\.md|README\.md|CONTRIBUTING\.md|"
                     r"CHANGELOG\.md)(?P=tick)(?![\w/-])")
# After a mention, or before it.
SECTION_AFTER = re.compile(r"^(?:,? (?:section )?| \()\"(?P<section>[^\"]+)\"")
SECTION_BEFORE = re.compile(r"\"(?P<section>[^\"]+)\" (?:in|of) $")
HEADING = re.compile(r"^(#{1,6}) +(.*?) *#*$")
NAV_PAGE = re.compile(r"^ *- (?P<title>[^:]+): (?P<path>[\w./-]+\.md)$")
NAV_SECTION = re.compile(r"^ *- (?P<title>[^:]+):$")

ITEM = re.compile(r"^( *)([-*]|\d+\.) +")
INDENT = 4  # of what belongs to an item of a list, in Python's Markdown


class NavEntry(NamedTuple):
    section: str  # "" at the top level
    title: str
    path: str


def read_nav(text):
    """The pages below `nav:` of mkdocs.yml, in order. Sections are one level deep."""
    entries, section, inside = [], "", False
    for line in text.splitlines():
        if line.startswith("nav:"):
            inside = True
        elif inside and line and not line[0].isspace():
            break
        elif inside and line.strip():
            page, head = NAV_PAGE.match(line), NAV_SECTION.match(line)
            if page:
                outer = len(line) - len(line.lstrip()) <= 2
                entries.append(NavEntry("" if outer else section, page["title"].strip('"'), page["path"]))
            elif head:
                section = head["title"].strip('"')
            else:
                raise ValueError(f"mkdocs.yml: this line of nav is neither a page nor a section: {line.strip()}")
    return entries


def lines_of(text):
    """(number, line, whether it is text): lines of code blocks and their fences are not."""
    fence = ""
    for number, line in enumerate(text.splitlines(), 1):
        found = FENCE.match(line)
        if fence:
            yield number, line, False
            if found and found[1].startswith(fence) and line.strip() == found[1]:
                fence = ""
        elif found:
            fence = found[1]
            yield number, line, False
        else:
            yield number, line, True


def without_code(line):
    """The line with its code spans blanked."""
    return re.sub(r"(`+)(?!`).+?(?<!`)\1(?!`)", lambda span: " " * len(span[0]), line)


def headings_of(text):
    found = (HEADING.match(line) for _, line, is_text in lines_of(text) if is_text)
    return [heading[2] for heading in found if heading]


def title_of(text):
    headings = headings_of(text)
    return headings[0] if headings else ""


def plain(heading):
    """The heading without backticks and links."""
    return re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")


def slug(heading):
    """The anchor of a heading."""
    kept = re.sub(r"[^\w\s-]", "", plain(heading).lower()).strip()
    return re.sub(r"[\s-]+", "-", kept)


def target_of(page, link):
    """(path from the root, anchor) of a relative link in a page, both "" where there is none."""
    path, _, anchor = link.partition("#")
    if not path:
        return str(page), anchor
    parts = []
    for part in (PurePosixPath(page).parent / path).parts:
        if part == ".." and parts and parts[-1] != "..":
            parts.pop()
        elif part != ".":
            parts.append(part)
    return "/".join(parts), anchor


def is_relative(link):
    return not re.match(r"[a-z][a-z0-9+.-]*:|/|//", link)


class Mention(NamedTuple):
    start: int
    end: int
    path: str
    section: str  # "" without one


def mentions_of(line):
    links = [link.span() for link in LINK.finditer(line)]
    for found in MENTION.finditer(line):
        if any(start <= found.start() < end for start, end in links):
            continue
        if line[:found.start()].endswith("]("):  # the target of a link that began in the line before
            continue
        after, before = SECTION_AFTER.match(line[found.end():]), SECTION_BEFORE.search(line[:found.start()])
        section = (after or before)
        yield Mention(found.start(), found.end(), found["path"], section["section"] if section else "")


def relative(path, page):
    """The link from a page to a path, both from the root."""
    return "/".join([".."] * (len(PurePosixPath(page).parts) - 1) + [path]) if "/" in str(page) else path


def read_pages(root, paths):
    return {path: (Path(root) / path).read_text(encoding="utf-8") for path in paths}


def link_mentions(page, text, paths):
    """Makes links of mentions of pages on the site."""
    lines = []
    for _, line, is_text in lines_of(text):
        if is_text and not line.startswith("#"):
            for mention in reversed(list(mentions_of(line))):
                if mention.path in paths and mention.path != page:
                    anchor = "#" + slug(mention.section) if mention.section else ""
                    link = f"[{line[mention.start:mention.end]}]({relative(mention.path, page)}{anchor})"
                    line = line[:mention.start] + link + line[mention.end:]
        lines.append(line)
    return "\n".join(lines) + "\n"


def indent_lists(text):
    """Indents what belongs to an item of a list by four columns for each level, and puts an empty line before a list."""
    lines = []
    columns = []  # where the text of each open item begins
    after_paragraph = False
    for _, line, is_text in lines_of(text):
        indent = len(line) - len(line.lstrip())
        item = ITEM.match(line) if is_text else None
        if line.strip() and (is_text or FENCE.match(line)):
            while columns and indent < columns[-1]:
                columns.pop()
        depth = len(columns)
        if item:
            if depth == 0 and after_paragraph:
                lines.append("")
            lines.append(" " * (INDENT * depth) + item[2] + " " + line[item.end():])
            columns.append(item.end())
        elif columns and line.strip():
            lines.append(" " * (INDENT * depth) + line[min(indent, columns[-1]):])
        else:
            lines.append(line)
        after_paragraph = bool(line.strip()) and not columns and not line.startswith("#")
    return "\n".join(lines) + "\n"
