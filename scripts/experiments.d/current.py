"""Whether the published figures are those of the present sources: python3 scripts/experiments.d/current.py [FOLDER]

Exits with 1 and names the studies to run again where a CSV is older than the code that its figures depend on
(sources.py), or where it does not say what made it.
"""
import re
import sys
from pathlib import Path

from results import digest_of
from studies import SOURCES_OF

LINE = re.compile(r"# sources of (?P<study>\w+): (?P<digest>[0-9a-f]{16})$")


def stale(folder):
    """[(file, what is wrong with it, study or empty)]"""
    digests = {}
    found = []
    for file in sorted(Path(folder).glob("*.csv")):
        with open(file, encoding="utf-8") as opened:
            line = LINE.match(opened.readline().rstrip("\n"))
        if line is None:
            found.append((file, "does not name its sources", ""))
        elif line["study"] not in SOURCES_OF:
            found.append((file, f"was made by the study {line['study']}, which is gone", ""))
        else:
            name = line["study"]
            digests.setdefault(name, digest_of(name))
            if digests[name] != line["digest"]:
                found.append((file, "is older than the code that its figures depend on", name))
    return found


def main():
    found = stale(sys.argv[1] if len(sys.argv) > 1 else "docs/experiments")
    for file, what, _ in found:
        print(f"{file}: {what}", file=sys.stderr)
    names = sorted({name for _, _, name in found if name})
    if names:
        print(f"refresh them: scripts/experiments --only {','.join(names)}", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
