"""After a change of structure: shows that results are the same, and marks the published figures as those of the present sources.

    python3 scripts/experiments.d/unchanged.py --since COMMIT --before BUILD [--after BUILD] [--only NAME[,NAME...]] [--every N]

COMMIT made the published figures, and BUILD was built from it. A study's figures are marked if its quick form gives the same CSV files
with the programs of both builds, and scripts/compare_reference (with each Nth plan and seed) finds no difference between their plans and
simulations. Studies that measure times are not marked: run them again. Exits with 1 if anything differs, and then marks nothing.
"""
import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from current import LINE, stale
from results import SOURCES_LINE, digest_of

PAGE = Path("docs/experiments")
TIMED = {"planning_time", "mig"}
PRINT_DIGESTS = ("import json, results, studies; "
                 "print(json.dumps({name: results.digest_of(name) for name in studies.SOURCES_OF}))")


def read_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--since", required=True)
    parser.add_argument("--before", required=True, type=Path)
    parser.add_argument("--after", default=Path("build/release"), type=Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--every", default="1")
    return parser.parse_args()


def digests_at(commit, folder):
    """{study: digest} of the sources of that commit, calculated as it does."""
    archive = subprocess.run(["git", "archive", commit], check=True, capture_output=True).stdout
    subprocess.run(["tar", "-x", "-C", folder], input=archive, check=True)
    scripts = Path(folder, "scripts/experiments.d").resolve()
    shown = subprocess.run([sys.executable, "-B", "-c", PRINT_DIGESTS], cwd=folder, env={"PYTHONPATH": str(scripts)}, check=True,
                           capture_output=True, text=True)
    return json.loads(shown.stdout)


def made_then(before, page=PAGE):
    """{study: its files} of the stale files that the sources of the commit made."""
    found = {}
    for file, _, study in stale(page):
        line = LINE.match(file.read_text(encoding="utf-8").split("\n", 1)[0])
        if study and line and line["digest"] == before.get(study):
            found.setdefault(study, []).append(file)
    return found


def rows_of(folder):
    """{name: lines} of the CSV files in the folder, without those that say how a file was made."""
    return {file.name: [line for line in file.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
            for file in sorted(Path(folder).glob("*.csv"))}


def quick_rows(study, build, folder):
    """The rows name their inputs, so both builds use the same folder."""
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run([sys.executable, "-B", "scripts/experiments.d/main.py", "--quick", "--only", study, "--bin", build / "bin",
                    "--out", folder], check=True, stdout=subprocess.DEVNULL)
    return rows_of(folder)


def differing(study, arguments):
    """The names of the study's CSV files that the builds make differently."""
    with tempfile.TemporaryDirectory() as folder:
        before, after = (quick_rows(study, build, Path(folder, "results")) for build in (arguments.before, arguments.after))
    return sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))


def mark(study, files):
    for file in files:
        _, rest = file.read_text(encoding="utf-8").split("\n", 1)
        file.write_text(SOURCES_LINE.format(study=study, digest=digest_of(study)) + "\n" + rest, encoding="utf-8")


def main():
    arguments = read_arguments()
    with tempfile.TemporaryDirectory() as folder:
        found = made_then(digests_at(arguments.since, folder))
    wanted = set(arguments.only.split(",")) - {""} or set(found)
    again = sorted(study for study in found if study in wanted & TIMED)
    chosen = {study: files for study, files in found.items() if study in wanted - TIMED}
    changed = []
    for study in chosen:
        names = differing(study, arguments)
        print(f"{study}: {'differs in ' + ', '.join(names) if names else 'the same'}", flush=True)
        changed += names
    # Figures come from plans and simulations: new options of commands do not change them.
    compare = ["scripts/compare_reference", "--before", arguments.before, "--after", arguments.after, "--every", arguments.every,
               "--only", "plans,simulate"]
    if chosen and subprocess.run(compare).returncode != 0:
        changed.append("compare_reference")
    if again:
        print(f"measure times, run them again: scripts/experiments --only {','.join(again)}")
    if changed:
        print("unchanged: results differ; nothing was marked", file=sys.stderr)
        return 1
    for study, files in chosen.items():
        mark(study, files)
    print(f"marked: {', '.join(chosen) or 'nothing'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
