"""Which sources the figures of a study depend on, and their digest.

A CSV records the digest of the sources that made it. The test experiments.current fails where they have changed since.
Comments and layout do not count.
"""
import ast
import hashlib
import re
from pathlib import Path

MODULES_OF_PLANS = ("base", "core", "profile", "partition", "schedule", "research", "batching", "verify", "planning")
MODULES_OF_SIMULATIONS = (*MODULES_OF_PLANS, "control", "node", "serve", "simulate", "config/trace.cc")
# Parts of a module that only the groups depend on that list them.
PARTS = ("research/learn", "research/train")
MODULES_OF_LEARNING = (*MODULES_OF_SIMULATIONS, *PARTS)
# Real processes run the same engine: what else is in the daemons decides whether a run works, not its figures.
GROUPS = {"measurements": (), "processes": (), "plans": MODULES_OF_PLANS, "simulations": MODULES_OF_SIMULATIONS,
          "learning": MODULES_OF_LEARNING}
MEASUREMENTS = "profiles/reference-gpu"
# Files and folders beside those of its group that a study depends on: programs of its own, other measurements, and
# Python outside of this folder.
PATHS_OF = {
    "reconstructed": ("scripts/experiments.d/rtx_2080_ti.csv",),
    "by_data": ("scripts/experiments.d/rtx_2080_ti.csv", "profiles/h200"),
    "mig": ("bench/mig", "tests/support/mig", "profiles/reference-a100-mig"),
    "mig_served": ("profiles/reference-a100-mig",),
    "mig_day_night": ("bench/support/daemons.py",),
    "roma": ("scripts/experiments.d/roma_plant.json",),
    "roma_spill": ("bench/simulate/mixed_cluster.cc",),
    "roma_processes": ("bench/support/daemons.py",),
    "actuator": ("bench/control/actuator.cc", "src/partition/drivers"),
}
FRAMEWORK = {"files", "pictures", "results", "sources"}  # they decide how figures look, not which they are
TOKEN = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\])*"|\s+', re.DOTALL)


def without_comments(text):
    """C++ without comments and layout; string literals stay as they are."""
    return TOKEN.sub(lambda found: found.group() if found.group().startswith('"') else " ", text).replace("  ", " ")


def content(file):
    text = file.read_text(encoding="utf-8")
    if file.suffix in (".cc", ".h"):
        return re.sub(r"\s+", " ", without_comments(text))
    if file.suffix == ".py":
        return ast.dump(ast.parse(text))
    return text


def files_of(group, study="", root=Path()):
    """Every file that a study of the group depends on, but its Python modules here, in a fixed order."""
    places = [root / place / module for module in GROUPS[group] for place in ("src", "include/gpulet")]
    places += [root / MEASUREMENTS, *(root / path for path in PATHS_OF.get(study, ()))]
    files = {file for place in places for file in (place.rglob("*") if place.is_dir() else [place])}
    left_out = [part for part in PARTS if part not in GROUPS[group]]
    files = {file for file in files if not any(f"/{part}/" in file.as_posix() for part in left_out)}
    return sorted(file for file in files if file.is_file() and file.suffix in (".cc", ".h", ".csv", ".json", ".py"))


def modules_of(module, folder):
    """The study's Python module and what it imports of its folder, but the framework."""
    found, left = set(), [module]
    while left:
        file = folder / f"{left.pop()}.py"
        if file in found or file.stem in FRAMEWORK or not file.is_file():
            continue
        found.add(file)
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                left += [name.name for name in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module:
                left.append(node.module)
    return sorted(found)


def digest(group, module, root=Path()):
    """Of the group's files, of the study's own ones, and of its Python modules."""
    files = [*files_of(group, module, root), *modules_of(module, root / "scripts/experiments.d")]
    summed = hashlib.sha256()
    for file in files:
        summed.update(f"{file.relative_to(root).as_posix()}\n{content(file)}\n".encode())
    return summed.hexdigest()[:16]
