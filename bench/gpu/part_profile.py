"""Parts that measure the device alone: answers, shares, and the profile with counters and all pairs."""
from __future__ import annotations

import concurrent.futures
import csv
import os
import subprocess
import time
from pathlib import Path

from gpu_site import Document
from results import Check, NotAvailable, last_line

THREADS_PER_ANSWER = 2
SATURATING = "resnet50"
# Of the time of the part profile: until latencies, counters, and latencies of other partitionings end at the latest. Pairs get
# the rest.
LATENCIES_END, COUNTERS_END, OTHERS_END = 0.4, 0.55, 0.65
STOP_SECONDS = 8  # for a measurement to end its processes after its last pair


def sweep(check: Check, partitioning: str, models: list[str], sizes: list[int], timeout: float, out: Path | None = None) -> bool:
    """Measures latencies. Each model is stored when it is complete."""
    answer = check.programs.run(
        "gpulet", "profile", "run", "--device", check.measured_device, "--partitioning", partitioning, "--models", check.models_file,
        "--only", ",".join(models), "--sizes", ",".join(map(str, sizes)), "--batches", ",".join(map(str, check.options.batches)),
        "--seconds-per-cell", check.options.seconds_per_cell, "--no-counters", "--proxy", check.programs.proxy, "--out",
        out or check.profiles(partitioning), timeout=max(5.0, timeout), log=f"profile-{partitioning}")
    if answer.returncode != 0:
        check.add(f"profile of {', '.join(models)}, {partitioning}", "not complete: " + last_line(answer.stderr), good=False)
    return answer.returncode == 0


def is_profiled(check: Check, partitioning: str, model: str) -> bool:
    table = check.latencies(partitioning).get(model, {})
    return all(set(check.options.batches) <= table.get(size, {}).keys() for size in check.options.sizes)


def measure_latencies(check: Check, partitioning: str, end: float) -> None:
    names = [model["name"] for model in check.models]
    missing = [name for name in names if not is_profiled(check, partitioning, name)]
    if missing:
        sweep(check, partitioning, missing, check.options.sizes, end - time.monotonic())
    done = [name for name in names if is_profiled(check, partitioning, name)]
    check.add(f"models profiled, {partitioning}", f"{len(done)} of {len(names)}" + (": " + ", ".join(done) if done else ""))


def measure_counters(check: Check, partitioning: str, end: float) -> None:
    seconds = end - time.monotonic()
    answer = check.programs.run(
        "gpulet", "profile", "counters", "--device", check.measured_device, "--models", check.models_file, "--profile",
        check.profile(partitioning), "--batches", ",".join(map(str, check.options.pair_batches)), "--minutes",
        max(0.01, seconds / 60), timeout=seconds + 30, log="counters")
    file = check.profile(partitioning) / "utilization.csv"
    if not file.exists():
        check.add("utilisation of L2 and memory", "not available: " + last_line(answer.stderr))
        return
    with open(file, encoding="utf-8", newline="") as stream:
        cells = {(row["model"], row["batch"]) for row in csv.DictReader(stream)}
    check.add("utilisation of L2 and memory", f"{len(cells)} batches of {len({model for model, _ in cells})} models"
              + (f" ({last_line(answer.stderr)})" if answer.returncode else ""))


def measure_pairs(check: Check, partitioning: str) -> None:
    seconds = max(2.0, check.left() - STOP_SECONDS)
    answer = check.programs.run(
        "gpulet", "profile", "interference", "--device", check.measured_device, "--partitioning", partitioning, "--models",
        check.models_file, "--profile", check.profile(partitioning), "--batches", ",".join(map(str, check.options.pair_batches)),
        "--seconds-per-run", check.options.seconds_per_pair_run, "--minutes", seconds / 60, "--proxy", check.programs.proxy,
        "--only", ",".join(model["name"] for model in check.models), timeout=seconds + STOP_SECONDS + 20, log="interference")
    source = last_line(answer.stderr) if answer.returncode else "measured"
    check.add(f"pairs of models beside each other, {partitioning}", f"{len(slowdowns(check, partitioning))} slowdowns, {source}")


def slowdowns(check: Check, partitioning: str) -> list[float]:
    """All measured ones, ascending."""
    file = check.profile(partitioning) / "interference.csv"
    if not file.exists():
        return []
    table = check.latencies(partitioning)
    with open(file, encoding="utf-8", newline="") as stream:
        return sorted(float(row["latency_ms"]) / table[row["model"]][int(row["partition"])][int(row["batch"])]
                      for row in csv.DictReader(stream))


def profile(check: Check) -> None:
    """Measures latencies, counters, and all pairs of the models side by side."""
    begun, seconds = time.monotonic(), check.left()
    first, *others = check.options.partitionings
    measure_latencies(check, first, begun + LATENCIES_END * seconds)
    measure_counters(check, first, begun + COUNTERS_END * seconds)
    for partitioning in others:
        measure_latencies(check, partitioning, begun + OTHERS_END * seconds)
    measure_pairs(check, first)


def answers(check: Check) -> None:
    """Compares every model's outputs on the GPU with those on the CPU."""
    if check.options.dry_run:
        raise NotAvailable("a simulated device computes nothing")
    if not check.programs.exists("gpulet-kernels"):
        raise NotAvailable("there is no gpulet-kernels")
    at_once = max(1, (os.cpu_count() or 1) // THREADS_PER_ANSWER)
    os.environ["OMP_NUM_THREADS"] = str(THREADS_PER_ANSWER)  # for the CPU's own answers

    def ask(model: Document) -> subprocess.CompletedProcess[str]:
        return check.programs.run("gpulet-kernels", "check", "--models", check.models_file, "--only", model["name"], "--device",
                                  check.measured_device, timeout=max(2.0, check.left()), log="answers")

    with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
        said = list(pool.map(ask, sorted(check.models, key=lambda one: -Path(one["file"]).stat().st_size)))
    del os.environ["OMP_NUM_THREADS"]
    (check.learned / "answers.txt").write_text("".join(answer.stdout for answer in said), encoding="utf-8")
    bad = [str(answer.args[answer.args.index("--only") + 1]) for answer in said if answer.returncode != 0]
    check.add("models that answer as on the CPU",
              f"{len(said) - len(bad)} of {len(said)}" + (", not " + ", ".join(bad) if bad else ""),
              "all, within 1 % of the largest output", not bad)


def saturating(check: Check) -> Document:
    return next((model for model in check.models if model["name"] == SATURATING), check.models[0])


def shares(check: Check) -> None:
    """Measures the throughput of a saturating model over its share."""
    name = saturating(check)["name"]
    begun, seconds = time.monotonic(), check.left()
    for index, partitioning in enumerate(check.options.partitionings, 1):
        left = begun + seconds * index / len(check.options.partitionings) - time.monotonic()
        sizes = [20, 60, 100] if check.options.quick else list(range(10, 101, 10))
        out = check.out / "shares" / partitioning
        sweep(check, partitioning, [name], sizes, left, out)
        rates: dict[int, float] = {}
        for file in out.glob("*/latency.csv"):
            with open(file, encoding="utf-8", newline="") as stream:
                for row in csv.DictReader(stream):
                    size, rate = int(row["partition"]), int(row["batch"]) * 1000 / float(row["latency_ms"])
                    rates[size] = max(rates.get(size, 0), rate)
        for size in sorted(rates):
            check.add(f"{name}, {partitioning}, {size} %", f"{rates[size]:.0f}/s, {rates[size] / rates[max(rates)]:.0%} of the whole")
