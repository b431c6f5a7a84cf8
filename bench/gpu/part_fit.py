"""The part that fits models of interference and compares with the gpulet paper (USENIX ATC 2022)."""
from __future__ import annotations

import json

from gpu_site import Document, write
from part_profile import slowdowns
from results import Check, NotAvailable, last_line

# Figure 7: the overhead of 90 % of the pairs is below 18 %. Figure 10: the linear model's errors on held-out pairs.
PAPER_SLOWDOWN_P90 = 1.18
PAPER_ERRORS = {"p90": 0.1026, "p95": 0.1398}
FITTED = ("linear", "learned")


def quantile(ascending: list[float], fraction: float) -> float:
    return ascending[min(len(ascending) - 1, int(fraction * len(ascending)))]


def write_distribution(check: Check, ascending: list[float]) -> None:
    """The distribution of slowdowns, as in figure 7."""
    lines = ["percent_of_batches,slowdown,slowdown_in_paper"]
    for percent in range(0, 101):
        paper = f"{PAPER_SLOWDOWN_P90}" if percent == 90 else ""
        lines.append(f"{percent},{quantile(ascending, percent / 100):.4f},{paper}")
    (check.learned / "slowdowns.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")


def held_out(check: Check, partitioning: str) -> Document:
    folder = check.profile(partitioning)
    answer = check.programs.run("gpulet", "profile", "check", "--profiles", folder.parent, "--name", folder.name, "--json",
                                timeout=max(5.0, check.left()), log="fit")
    if answer.returncode != 0:
        raise RuntimeError(last_line(answer.stderr))
    return json.loads(answer.stdout)["profiles"][0]


def fit(check: Check) -> None:
    """Fits the linear and the learned model of interference, and reports their errors on held-out pairs."""
    partitioning = check.options.partitionings[0]
    measured = slowdowns(check, partitioning)
    if not measured:
        raise NotAvailable("no pair was measured; run the part profile first")
    write_distribution(check, measured)
    check.add(f"slowdown beside another gpulet, {len(measured)} batches",
              f"median {quantile(measured, 0.5):.2f}, 90th percentile {quantile(measured, 0.9):.2f}, worst {measured[-1]:.2f}",
              f"figure 7 of the paper: 90th percentile {PAPER_SLOWDOWN_P90}")
    found = held_out(check, partitioning)
    write(check.learned / "fit.json", found)
    errors = {one["model"]: one for one in found["models"]}
    for name in FITTED:
        if name not in errors:
            check.add(f"{name} model", "not available: " + found.get("note", "not fitted"))
            continue
        figure = ", ".join(f"{key} {errors[name][key]:.1%}" for key in ("p50", "p90", "p95"))
        paper = ", ".join(f"{key} {value:.1%}" for key, value in PAPER_ERRORS.items())
        check.add(f"{name} model, error on held-out pairs", figure, f"figure 10 of the paper (linear): {paper}")
