"""The measurements of scripts/gpu-check after the build. Standard library only.

Each part gets its part of the time that is left and ends with rows for the table. A part that fails says why in its
row, and the others go on.
"""
from __future__ import annotations

import argparse
import concurrent.futures
import csv
import json
import math
import os
import platform
import shutil
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Callable

sys.path.insert(0, str(Path(__file__).resolve().parent))
from gpu_site import Document, Plan, Programs, Site, SIZES, read, write  # noqa: E402  # beside this file

MOST_VIOLATIONS = 0.01
POLICIES = {"sbp": "sbp", "greedy": "greedy-best-fit", "elastic": "elastic"}
# Shares of the device's time of models with short and with long batches.
MIXES = {"equal": (1.0, 1.0), "short-skew": (3.0, 1.0), "long-skew": (1.0, 3.0)}
SATURATING = "resnet50"
VISIT_SECONDS = 5.5  # long enough for a frontend to believe a rate
STEP = 1.15  # between the rates that a search tries
# The parts in their order, with their shares of the time.
PARTS = {"answers": 1.0, "shares": 2.0, "profile": 10.0, "interference": 2.0, "path": 1.0, "changes": 3.0, "policies": 8.0}
THREADS_PER_ANSWER = 2
SECONDS_OF_ALL_MIXES = 150  # with less, only the first is measured
# Bytes of inputs per second that one frontend and load generator carry beside each other.
MOST_BYTES_PER_S = 1.2e9
BYTES = {"BOOL": 1, "INT8": 1, "UINT8": 1, "INT16": 2, "FP16": 2, "BF16": 2, "INT32": 4, "FP32": 4, "INT64": 8, "FP64": 8}
LARGEST_LEARNED = 15_000_000  # bytes of files; their folder has at most 16 MB
LONGEST_LOG = 100_000
AIMS = {"sbp": 0.617, "greedy": 0.812}  # by which elastic is to be better, on average
Latencies = dict[str, dict[int, dict[int, float]]]


@dataclass
class Row:
    what: str
    figure: str
    aim: str = ""
    verdict: str = ""
    part: str = ""


@dataclass
class Check:
    options: argparse.Namespace
    programs: Programs
    out: Path
    models: list[Document]
    deadline: float
    rows: list[Row] = field(default_factory=list)
    part: str = ""  # that adds rows

    def left(self) -> float:
        return self.deadline - time.monotonic()

    def add(self, what: str, figure: str, aim: str = "", good: bool | None = None) -> None:
        verdict = "" if good is None else ("ok" if good else "MISSED")
        self.rows.append(Row(what, figure, aim, verdict, self.part))
        print(f"  {what}: {figure} {verdict}", flush=True)

    @property
    def learned(self) -> Path:
        """The folder of the results; the rest of `out` is intermediate."""
        return self.out / "learned"

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

    def device_type(self, partitioning: str) -> str:
        folder = self.profiles(partitioning)
        types = [one.name for one in folder.iterdir()] if folder.is_dir() else []
        if not types:
            raise RuntimeError(f"there is no profile under {partitioning}; run the part profile first")
        return types[0]

    def sweep(self, partitioning: str, model: str, sizes: list[int], timeout: float) -> bool:
        answer = self.programs.run(
            "gpulet", "profile", "run", "--device", f"cuda:{self.options.gpu}", "--partitioning", partitioning, "--models",
            self.out / "models.json", "--only", model, "--keep", "--sizes", ",".join(map(str, sizes)), "--batches", self.options.batches,
            "--seconds-per-cell", self.options.seconds_per_cell, "--no-counters", "--proxy", self.programs.proxy, "--out",
            self.profiles(partitioning), timeout=max(5.0, timeout), log=f"profile-{partitioning}")
        if answer.returncode != 0:
            self.add(f"profile of {model}, {partitioning}", "failed: " + last_line(answer.stderr), good=False)
        return answer.returncode == 0

    def plan(self, partitioning: str, models: list[Document], policy: str = "elastic") -> Plan:
        return Plan(models, self.profiles(partitioning), self.device_type(partitioning), str(self.options.gpu), partitioning, policy)


def last_line(text: str) -> str:
    lines = [line for line in text.strip().splitlines() if line.strip()]
    return lines[-1].strip() if lines else "nothing was said"


def saturating(check: Check) -> Document:
    return next((model for model in check.models if model["name"] == SATURATING), check.models[0])


def answers(check: Check, seconds: float) -> None:
    """Compares every model's outputs on the GPU with those on the CPU."""
    if not check.programs.exists("gpulet-kernels"):
        check.add("answers against the CPU", "not checked: there is no gpulet-kernels")
        return
    at_once = max(1, (os.cpu_count() or 1) // THREADS_PER_ANSWER)
    os.environ["OMP_NUM_THREADS"] = str(THREADS_PER_ANSWER)  # for the CPU's own answers

    def ask(model: Document) -> subprocess.CompletedProcess[str]:
        return check.programs.run("gpulet-kernels", "check", "--models", check.out / "models.json", "--only", model["name"],
                                  "--device", f"cuda:{check.options.gpu}", timeout=max(2.0, seconds), log="answers")

    with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
        said = list(pool.map(ask, sorted(check.models, key=lambda one: -Path(one["file"]).stat().st_size)))
    del os.environ["OMP_NUM_THREADS"]
    (check.learned / "answers.txt").write_text("".join(answer.stdout for answer in said), encoding="utf-8")
    bad = [str(answer.args[answer.args.index("--only") + 1]) for answer in said if answer.returncode != 0]
    check.add("models that answer as on the CPU",
              f"{len(said) - len(bad)} of {len(said)}" + (", not " + ", ".join(bad) if bad else ""),
              "all, within 1 % of the largest output", not bad)


def shares(check: Check, seconds: float) -> None:
    """Throughput of a saturating model over its share."""
    name = saturating(check)["name"]
    end = time.monotonic() + seconds
    for partitioning in check.options.partitionings:
        # Every size under mps is a process that loads the model, so that it gets most of the time.
        last = partitioning == check.options.partitionings[-1]
        left = (end - time.monotonic()) * (1 if last else 0.75)
        sizes = [20, 60, 100] if check.options.quick else list(range(10, 101, 10))
        if not check.sweep(partitioning, name, sizes, left):
            continue
        table = check.latencies(partitioning)[name]
        rates = {size: max(batch * 1000 / ms for batch, ms in batches.items()) for size, batches in table.items()}
        for size in sorted(rates):
            check.add(f"{name}, {partitioning}, {size} %", f"{rates[size]:.0f}/s, {rates[size] / rates[max(rates)]:.0%} of the whole")


def is_profiled(check: Check, partitioning: str, model: str) -> bool:
    table = check.latencies(partitioning).get(model, {})
    batches = {int(batch) for batch in check.options.batches.split(",")}
    return all(batches <= table.get(size, {}).keys() for size in SIZES)


def profile(check: Check, seconds: float) -> None:
    """Profiles the models while time remains, first two in each partitioning."""
    end = time.monotonic() + seconds
    names = [model["name"] for model in check.models]
    parts = check.options.partitionings
    todo = [(part, name) for part in parts for name in names[:2]] + [(part, name) for part in parts for name in names[2:]]
    todo = [(part, name) for part, name in todo if not is_profiled(check, part, name)]
    begun = time.monotonic()
    for index, (part, name) in enumerate(todo):
        mean = (time.monotonic() - begun) / max(1, index)
        if time.monotonic() + mean > end:
            break
        check.sweep(part, name, SIZES, end - time.monotonic())
    for part in parts:
        done = [name for name in names if is_profiled(check, part, name)]
        check.add(f"models profiled, {part}", f"{len(done)} of {len(names)}" + (": " + ", ".join(done) if done else ""))


def interference(check: Check, seconds: float) -> None:
    """Measures pairs of models side by side while time remains, in a random order."""
    partitioning = check.options.partitionings[0]
    pairs = check.profiles(partitioning) / check.device_type(partitioning)
    answer = check.programs.run(
        "gpulet", "profile", "interference", "--device", f"cuda:{check.options.gpu}", "--partitioning", partitioning, "--models",
        check.out / "models.json", "--profile", pairs, "--batches", check.options.pair_batches, "--seconds-per-run",
        check.options.seconds_per_cell, "--minutes", seconds / 60,
        "--proxy", check.programs.proxy, timeout=seconds + 60, log="interference")
    if answer.returncode != 0:
        check.add("interference", "failed: " + last_line(answer.stderr), good=False)
        return
    (check.learned / "interference.txt").write_text(answer.stdout, encoding="utf-8")
    with open(pairs / "interference.csv", encoding="utf-8", newline="") as stream:
        measured = list(csv.DictReader(stream))
    table = check.latencies(partitioning)
    slowdowns = sorted(float(row["latency_ms"]) / table[row["model"]][int(row["partition"])][int(row["batch"])] for row in measured)
    check.add(f"slowdown of batches beside another gpulet, {partitioning}",
              f"median {slowdowns[len(slowdowns) // 2]:.2f}, 90th percentile {slowdowns[len(slowdowns) * 9 // 10]:.2f}, "
              f"worst {slowdowns[-1]:.2f} of {len(slowdowns)}")


def libtorch_loop(check: Check, model: Document, batch: int) -> float | None:
    """Requests per second of LibTorch called in a loop, its inputs on the GPU already."""
    script = Path(__file__).resolve().parent / "libtorch_loop.py"
    shape = [batch, *model["inputs"][0]["shape"]]
    answer = subprocess.run([check.options.python, script, model["file"], json.dumps(shape), str(check.options.gpu)],
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    if answer.returncode != 0:
        check.add("LibTorch in a loop", "not measured: " + last_line(answer.stderr))
        return None
    return batch * 1000 / float(answer.stdout)


def path(check: Check, seconds: float) -> None:
    """Compares the whole path with LibTorch in a loop at the same batch."""
    model = saturating(check)
    partitioning = check.options.partitionings[0]
    cells = check.latencies(partitioning).get(model["name"], {}).get(100)
    if not cells:
        check.add("path", f"not measured: {model['name']} is not profiled; run the part profile first", good=False)
        return
    batch = max(cells)
    looped = libtorch_loop(check, model, batch)
    proxied = batch * 1000 / cells[batch]
    # One gpulet with the whole GPU, like the loop.
    plan = check.plan(partitioning, [{**model, "rate": 0.7 * proxied, "slo_ms": 20 * cells[batch] + 100, "max_batch": batch}])
    plan.sizes = [100]
    with Site(check.programs, check.out / "path", plan) as site:
        site.wait_until_serving()
        closed = site.workload("closed", [{"name": model["name"], "slo_ms": 10000, "arrivals": "closed", "concurrency": 6 * batch}])
        length = max(1.0, min(10.0, seconds / 4))
        site.load(closed, length / 4)
        served = site.load(closed, length)[0]["served"] / length
    for what, rate in (("a proxy", proxied), ("the whole path", served)):
        side = "below" if looped is None or rate < looped else "above"
        loss = "" if looped is None else f", {abs(1 - rate / looped):.1%} {side} LibTorch in a loop ({looped:.0f}/s)"
        check.add(f"{model['name']} x{batch} through {what}", f"{rate:.0f}/s{loss}", "at most 5 % below",
                  None if looped is None else rate >= 0.95 * looped)


def objectives(check: Check, partitioning: str, factor: float = 2.5) -> list[Document]:
    """The profiled models; an objective is a multiple of the largest batch's latency on the whole GPU."""
    models = []
    for model in check.models:
        cells = check.latencies(partitioning).get(model["name"], {}).get(100)
        if cells and is_profiled(check, partitioning, model["name"]):
            batch = min(max(cells), model.get("max_batch", 32))
            models.append({**model, "max_batch": batch, "slo_ms": round(max(check.options.least_slo_ms, factor * cells[max(cells)]), 1)})
    return models


def input_bytes(model: Document) -> int:
    return sum(BYTES[tensor["type"]] * math.prod(tensor["shape"]) for tensor in model["inputs"])


def fastest(check: Check, partitioning: str, model: Document) -> float:
    """The least milliseconds of the whole GPU for a request."""
    return min(ms / batch for batch, ms in check.latencies(partitioning)[model["name"]][100].items())


def carried(check: Check, partitioning: str, models: list[Document]) -> list[Document]:
    """The most models whose requests one frontend can carry when they share the GPU equally.

    A GPU computes small networks faster than one frontend delivers their images.
    """
    rates = sorted(((1000 / fastest(check, partitioning, model) * input_bytes(model), model["name"]) for model in models))
    count = len(rates)
    while count > 2 and sum(rate for rate, _ in rates[:count]) / count > MOST_BYTES_PER_S:
        count -= 1
    names = {name for _, name in rates[:count]}
    return [model for model in models if model["name"] in names]


def mix(check: Check, partitioning: str, models: list[Document], weights: tuple[float, float]) -> list[Document]:
    """The models with rates that take those fractions of the device's time, in total all of it."""
    one = {model["name"]: fastest(check, partitioning, model) for model in models}
    middle = sorted(one.values())[(len(one) - 1) // 2]
    parts = {name: weights[0] if ms <= middle else weights[1] for name, ms in one.items()}
    total = sum(parts.values())
    return [{**model, "rate": round(1000 / one[model["name"]] * parts[model["name"]] / total, 3)} for model in models]


def scaled(models: list[Document], scale: float) -> list[Document]:
    return [{**model, "rate": model["rate"] * scale} for model in models]


def schedulable_scale(check: Check, partitioning: str, models: list[Document], policy: str, work: Path) -> float:
    """The highest factor, in steps, at which the policy can schedule the mix; 0 if none."""
    cluster = write(work / "cluster.json", {"nodes": [{"name": "n0", "devices": [
        {"type": check.device_type(partitioning), "count": 1, "partitioning": partitioning, "sizes": SIZES, "max_partitions": len(SIZES)}]}]})
    scale = 2.0
    while scale > 0.02:
        demand = write(work / "demand.json", {"models": [
            {key: model[key] for key in ("name", "rate", "slo_ms", "max_batch")} for model in scaled(models, scale)]})
        answer = check.programs.run("gpulet", "schedule", "--json", "--cluster", cluster, "--profiles", check.profiles(partitioning),
                                    "--demand", demand, "--policy", policy, log="schedule")
        if answer.returncode == 0 and json.loads(answer.stdout)["schedulable"]:
            return scale
        scale /= STEP
    return 0.0


def violations_in_words(model: Document) -> str:
    kinds = [f"{model[kind]} {kind}" for kind in ("late", "dropped", "errors") if model[kind]]
    return f"{violation([model]):.2%} of {model['offered']}" + (f" ({', '.join(kinds)})" if kinds else "")


def violation(models: list[Document]) -> float:
    """The value of the worst model."""
    return max(((model["late"] + model["dropped"] + model["errors"]) / model["offered"] if model["offered"] else 0) for model in models)


def kept_rate(check: Check, site: Site, models: list[Document], start: float, end: float) -> tuple[float, float]:
    """Requests per second within objectives at the highest tried rate that keeps every model's objective."""
    workload = site.workload("mix", [
        {"name": model["name"], "rate": model["rate"], "slo_ms": model["slo_ms"], "arrivals": "poisson"} for model in models])
    length = check.options.seconds_per_run
    best, scale, direction = (0.0, 0.0), start, 0
    while scale > 0.01 and time.monotonic() + 1.5 * length < end:
        site.load(workload, length / 2, scale)  # the frontend adapts
        rows = site.load(workload, length, scale)
        kept = violation(rows) <= MOST_VIOLATIONS
        if kept and scale > best[1]:
            best = (sum(row["served"] - row["late"] for row in rows) / length, scale)
        if direction and (direction > 0) != kept:
            break  # the border is between this one and the one before
        direction = 1 if kept else -1
        scale = scale * STEP if kept else scale / STEP
    return best


def policies(check: Check, seconds: float) -> None:
    """Throughput within objectives of three policies on three mixes."""
    partitioning = check.options.partitionings[0]
    models = carried(check, partitioning, objectives(check, partitioning))
    if len(models) < 2:
        check.add("policies", "not compared: fewer than two models were profiled", good=False)
        return
    end = time.monotonic() + seconds
    gains: dict[str, list[float]] = {name: [] for name in AIMS}
    mixes = list(MIXES)[:1 if check.options.quick or seconds < SECONDS_OF_ALL_MIXES else None]
    runs = [(mix_name, policy) for mix_name in mixes for policy in POLICIES]
    kept: dict[str, float] = {}
    check.add("models of the policies", ", ".join(f"{model['name']} ({model['slo_ms']:.0f} ms)" for model in models))
    for index, (mix_name, policy) in enumerate(runs):
        share_of_time = (end - time.monotonic()) / (len(runs) - index)
        until = time.monotonic() + share_of_time
        work = check.out / "policies" / f"{mix_name}-{policy}"
        wanted = mix(check, partitioning, models, MIXES[mix_name])
        scale = schedulable_scale(check, partitioning, wanted, POLICIES[policy], work)
        rate = 0.0
        if scale > 0:
            with Site(check.programs, work, check.plan(partitioning, scaled(wanted, scale), POLICIES[policy])) as site:
                site.wait_until_serving()
                rate, kept_scale = kept_rate(check, site, wanted, scale, until)
                scale = kept_scale
        kept[policy] = rate
        check.add(f"{mix_name}, {policy}", f"{rate:.0f}/s kept" + (f" at {scale:.2f} of the device's time" if rate else ""))
        if policy == list(POLICIES)[-1]:
            for other, rates in gains.items():
                if kept[other] > 0:
                    rates.append(kept["elastic"] / kept[other] - 1)
    for other, rates in gains.items():
        if rates:
            mean = sum(rates) / len(rates)
            check.add(f"elastic over {other}, mean of {len(rates)} mixes", f"{mean:+.1%}", f"at least +{AIMS[other]:.1%}",
                      mean >= AIMS[other])
        else:
            check.add(f"elastic over {other}", f"not known: {other} kept no rate", f"at least +{AIMS[other]:.1%}", False)


class Watch:
    """The duration of each plan change from decision to serving, as reported by the frontend."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.took_ms: list[float] = []
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.look)

    def look(self) -> None:
        epoch = None
        while not self.over.is_set():
            status = self.site.status()
            if status and not status["frontend"]["reorganising"]:
                if epoch is not None and status["frontend"]["epoch"] > epoch:
                    self.took_ms.append(float(status["reorganisations"]["last_took_ms"]))
                epoch = status["frontend"]["epoch"]
            self.over.wait(0.05)

    def __enter__(self) -> "Watch":
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        self.thread.join()


def changes(check: Check, seconds: float) -> None:
    """Changes shares under load; measures the duration and the latency of other requests."""
    for partitioning in check.options.partitionings:
        models = carried(check, partitioning, objectives(check, partitioning, factor=6))[:2]
        if len(models) < 2:
            check.add(f"change of shares, {partitioning}", "not measured: fewer than two models were profiled", good=False)
            continue
        wanted = mix(check, partitioning, models, (1.0, 1.0))
        length = max(12.0, min(30.0, seconds / len(check.options.partitionings) - 10))
        with Site(check.programs, check.out / f"changes-{partitioning}",
                  check.plan(partitioning, scaled(wanted, 0.2))) as site:
            site.wait_until_serving()
            workloads = [site.workload(model["name"], [{"name": model["name"], "rate": model["rate"], "slo_ms": model["slo_ms"],
                                                         "arrivals": "poisson"}]) for model in wanted]
            site.load(workloads[0], 2, 0.2)
            with Watch(site) as watch:
                steady: list[list[Document]] = []
                thread = threading.Thread(target=lambda: steady.append(site.load(workloads[0], length, 0.2)))
                thread.start()
                # The visitor's rate rises and falls, and with it the shares.
                visits = max(2, int(length / VISIT_SECONDS))
                for visit in range(visits):
                    site.load(workloads[1], length / visits - 0.3, 0.1 if visit % 2 == 0 else 1.2)
                thread.join()
        took = sorted(one for one in watch.took_ms if one >= 1)  # the others needed no new gpulet
        if not took or not steady:
            check.add(f"change of shares, {partitioning}", "none was seen", good=False)
            continue
        median = took[(len(took) - 1) // 2]
        green = partitioning == "green"
        check.add(f"decision to serving, {partitioning}", f"median {median:.0f} ms, worst {took[-1]:.0f} ms of {len(took)}",
                  "under 100 ms" if green else "", median < 100 if green else None)
        check.add(f"violations of a steady model meanwhile, {partitioning}", violations_in_words(steady[0][0]), "none",
                  violation(steady[0]) <= 0.001)


def table(rows: list[Row]) -> str:
    columns = [("what", 0), ("figure", 0), ("aim", 0), ("", 0)]
    cells = [["what", "figure", "aim", ""], *[[row.what, row.figure, row.aim, row.verdict] for row in rows]]
    widths = [max(len(line[i]) for line in cells) for i in range(len(columns))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip() for line in cells]
    return "\n".join([lines[0], "-" * max(map(len, lines)), *lines[1:]]) + "\n"


def machine(check: Check) -> Document:
    """The environment of the results besides the profile's device."""
    asked = subprocess.run([check.options.python, "-c", "import torch; print(torch.__version__, torch.version.cuda)"],
                           stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False)
    return {"gpulet": check.programs.run("gpulet", "--version").stdout.strip(), "torch": asked.stdout.strip(),
            "kernel": platform.release(), "cpus": os.cpu_count(), "date": time.strftime("%Y-%m-%d", time.gmtime())}


def keep_logs(check: Check) -> None:
    """Copies the ends of all logs to the results, as far as space permits."""
    room = LARGEST_LEARNED - sum(file.stat().st_size for file in check.learned.rglob("*") if file.is_file())
    for log in sorted(check.out.rglob("*.log")):
        text = log.read_bytes()[-LONGEST_LOG:]
        room -= len(text)
        if room < 0:
            print(f"some logs in {check.out} are too long to be copied to the results")
            return
        kept = check.learned / "logs" / log.relative_to(check.out)
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_bytes(text)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=Path, required=True)
    parser.add_argument("--proxy", type=Path)
    parser.add_argument("--models", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--gpu", default="0")
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--partitionings", type=lambda text: text.split(","), default=["mps", "green"])
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--parts", type=lambda text: text.split(","), default=[], help=", ".join(PARTS))
    parser.add_argument("--keep", action="store_true", help="add to the results of an earlier run")
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    options.batches = "1,4" if options.quick else "1,4,16,32"
    options.pair_batches = "1,4" if options.quick else "4,32"  # few, for more pairs of models
    options.seconds_per_cell = 0.02 if options.quick else 0.1
    options.seconds_per_run = 1.0 if options.quick else 5.0
    options.least_slo_ms = 40.0 if options.quick else 10.0
    return options


def run_part(check: Check, part: Callable[[Check, float], None], fraction: float) -> None:
    """Gives the part this fraction of the time left."""
    name = check.part = part.__name__
    check.rows = [row for row in check.rows if row.part != name]
    seconds = max(0.0, check.left()) * fraction
    print(f"==> {name}: {part.__doc__} ({seconds:.0f} s)", flush=True)
    try:
        part(check, seconds)
    except (RuntimeError, OSError, ValueError, KeyError, StopIteration, subprocess.TimeoutExpired) as failure:
        check.add(name, f"failed: {type(failure).__name__}: {failure}", good=False)


def main() -> int:
    options = parse_arguments()
    # Raise an exception, so that every site stops its daemons.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    out = options.out.resolve()
    logs = out / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    results = out / "learned" / "results.json"
    earlier = [Row(**row) for row in read(results)["rows"]] if options.keep and results.exists() else []
    if not options.keep:
        shutil.rmtree(out / "learned", ignore_errors=True)
    (out / "learned").mkdir(exist_ok=True)
    folder = options.models.resolve().parent
    models = [{**model, "file": os.path.normpath(folder / model["file"]), "rate": 0}
              for model in read(options.models)["models"] if (folder / model["file"]).exists()]
    models = [{**model, "max_batch": 4 if options.quick else 32} for model in models]
    write(out / "models.json", {"models": models})
    programs = Programs(options.programs.resolve(), (options.proxy or options.programs / "gpulet-proxy").resolve(), logs)
    check = Check(options, programs, out, models, time.monotonic() + options.seconds, earlier)
    if not models:
        print(f"gpu-check: none of the models of {options.models} is exported", file=sys.stderr)
        return 1
    every = (answers, shares, profile, interference, path, changes, policies)
    parts = [part for part in every if not options.parts or part.__name__ in options.parts]
    for index, part in enumerate(parts):
        run_part(check, part, PARTS[part.__name__] / sum(PARTS[later.__name__] for later in parts[index:]))
    text = table(check.rows)
    (check.learned / "table.txt").write_text(text, encoding="utf-8")
    write(results, {"machine": machine(check), "rows": [vars(row) for row in check.rows]})
    keep_logs(check)
    print("\n" + text)
    return 1 if any(row.verdict == "MISSED" for row in check.rows) else 0


if __name__ == "__main__":
    sys.exit(main())
