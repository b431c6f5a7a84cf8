"""What a check has and leaves: its options, programs and models, and the files of its results. Standard library only."""
from __future__ import annotations

import argparse
import csv
import os
import platform
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

from gpu_site import Document, Plan, Programs, write

LARGEST_BUNDLE = 60 << 20  # bytes of all result files
LARGEST_LOGS = 20_000_000
LONGEST_LOG = 200_000
# Of a part. A cut part keeps what it has; "not available" names what is missing.
STATES = ("ran", "cut", "failed", "not available", "skipped")
Latencies = dict[str, dict[int, dict[int, float]]]


class NotAvailable(Exception):
    """This machine, or this version, cannot do what a part measures."""


class Cut(Exception):
    """The time of a part is over."""


@dataclass
class Row:
    what: str
    figure: str
    aim: str = ""
    verdict: str = ""


@dataclass
class PartResult:
    part: str
    state: str = "skipped"
    reason: str = ""
    seconds: float = 0
    rows: list[Row] = field(default_factory=list)


def last_line(text: str) -> str:
    lines = [line for line in text.strip().splitlines() if line.strip()]
    return lines[-1].strip() if lines else "nothing was said"


@dataclass
class Check:
    options: argparse.Namespace
    programs: Programs
    out: Path
    models: list[Document]
    deadline: float
    results: dict[str, PartResult] = field(default_factory=dict)
    current: PartResult = field(default_factory=lambda: PartResult("none"))
    part_end: float = 0

    def left(self) -> float:
        """Seconds until the end of the part."""
        return self.part_end - time.monotonic()

    def add(self, what: str, figure: str, aim: str = "", good: bool | None = None) -> None:
        verdict = "" if good is None else ("ok" if good else "MISSED")
        self.current.rows.append(Row(what, figure, aim, verdict))
        print(f"  {what}: {figure} {verdict}", flush=True)

    @property
    def learned(self) -> Path:
        """The folder of the results; the rest of `out` is intermediate."""
        return self.out / "learned"

    @property
    def models_file(self) -> Path:
        return self.out / "models.json"

    def profiles(self, partitioning: str) -> Path:
        return self.learned / "profiles" / partitioning

    def latencies(self, partitioning: str) -> Latencies:
        """Measured latencies: {model: {size: {batch: ms}}}."""
        found: Latencies = {}
        for file in self.profiles(partitioning).glob("*/latency.csv"):
            with open(file, encoding="utf-8", newline="") as stream:
                for row in csv.DictReader(stream):
                    sizes = found.setdefault(row["model"], {})
                    sizes.setdefault(int(row["partition"]), {})[int(row["batch"])] = float(row["latency_ms"])
        return found

    def profile(self, partitioning: str) -> Path:
        """The folder of the device's profile."""
        folder = self.profiles(partitioning)
        found = sorted(one for one in folder.iterdir() if not one.name.startswith(".")) if folder.is_dir() else []
        if not found:
            raise NotAvailable(f"there is no profile under {partitioning}; run the part profile first")
        return found[0]

    def device(self, partitioning: str) -> Document:
        """The entry of a backend's file."""
        entry = {"type": self.profile(partitioning).name, "partitioning": partitioning}
        return entry if self.options.dry_run else {**entry, "gpu": str(self.options.gpu)}

    def plan(self, partitioning: str, models: list[Document], policy: str = "elastic") -> Plan:
        return Plan(models, self.profiles(partitioning), self.device(partitioning), policy,
                    device_profiles=self.options.simulated.parent if self.options.dry_run else None)

    @property
    def measured_device(self) -> str:
        """The value of --device of `gpulet profile`."""
        return f"simulated:{self.options.simulated}" if self.options.dry_run else f"cuda:{self.options.gpu}"


def table(results: list[PartResult]) -> str:
    cells = [["part", "what", "figure", "aim", ""]]
    for result in results:
        state = result.state + (f": {result.reason}" if result.reason else "")
        cells.append([result.part, state, f"{result.seconds:.0f} s", "", ""])
        cells += [["", row.what, row.figure, row.aim, row.verdict] for row in result.rows]
    widths = [min(70, max(len(line[i]) for line in cells)) for i in range(5)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip() for line in cells]
    return "\n".join([lines[0], "-" * max(map(len, lines)), *lines[1:]]) + "\n"


def machine(check: Check) -> Document:
    """The environment of the results besides the profile's device."""
    asked = check.programs.run_command(
        [check.options.python, "-c", "import torch; print(torch.__version__, torch.version.cuda)"], timeout=60)
    return {"gpulet": check.programs.run("gpulet", "--version", timeout=10).stdout.strip(), "torch": asked.stdout.strip(),
            "kernel": platform.release(), "cpus": os.cpu_count(), "date": time.strftime("%Y-%m-%d", time.gmtime()),
            "dry_run": check.options.dry_run}


def keep_logs(check: Check) -> None:
    """Copies the ends of all logs to the results, as far as space permits."""
    room = LARGEST_LOGS
    for log in sorted(check.out.rglob("*.log")):
        if check.learned in log.parents:
            continue
        text = log.read_bytes()[-LONGEST_LOG:]
        room -= len(text)
        if room < 0:
            print(f"some logs in {check.out} are too long to be copied to the results")
            return
        kept = check.learned / "logs" / log.relative_to(check.out)
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_bytes(text)


def bundle_bytes(check: Check) -> int:
    return sum(file.stat().st_size for file in check.learned.rglob("*") if file.is_file())


def save(check: Check) -> None:
    """Writes what is known now. Called after each part, so that a run that is cut keeps the finished parts."""
    results = list(check.results.values())
    (check.learned / "table.txt").write_text(table(results), encoding="utf-8")
    write(check.learned / "results.json", {"machine": check.options.machine, "parts": [asdict(one) for one in results]})
    keep_logs(check)
