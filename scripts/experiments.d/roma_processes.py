"""Cores under control on real processes: GoogLeNet and MobileNet on one core by quota, beside a simulated GPU.

Needs models/googlenet.pt and models/mobilenet_v2.pt (scripts/export_models.py), gpulet-frontend, gpulet-backend and
gpulet-proxy beside gpulet, and an idle machine. Measures both models on the core; then, for each of CASES, starts a frontend
with the policy roma and a backend as processes on loopback, and sends requests that are as far apart as each other, in steps
of STEP_S seconds. Every second it asks the frontend what is controlled, and the kernel how much time the proxies had. The
figures are those of the machine.
"""
import csv
import json
import os
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

import pictures
from results import percent

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench/support"))
from daemons import Site, read, write  # noqa: E402  (bench/support)

NAME = "roma_processes"
MODELS = ("googlenet", "mobilenet_v2")


@dataclass(frozen=True)
class Case:
    slo_ms: int
    period_s: float


# The figure shows the first run; the others vary the control period and the objective.
CASES = (Case(1200, 0.5), Case(1200, 1), Case(600, 1))
SET_POINT = 0.5
PATIENCE_MS = 60000  # of clients, so that no request is dropped
STEP_S, SETTLED_AFTER_S, WITHIN = 20, 10, 0.2
# The rates as fractions of what the core serves of each model alone, and how much slower than the core the GPU is. The
# GPU serves a third of what the core does, so the core has work of both models at every step: cores can hold a set
# point only if the GPU does not answer every request sooner.
STEPS = ((0.30, 0.45), (0.60, 0.45), (0.30, 0.60))
GPU_SLOWER_THAN_CORE = 3.0
COLUMNS = ("objective, period", "model", f"seconds within {100 * WITHIN:.0f} % of the set point",
           "means of the steps, of the set point", "all, of the set point", "periods above the objective",
           "answered by the core", "core-seconds of both", "of them used")


class Bench:
    """The machine: its programs, the core that serves, and the time of a request on it."""

    def __init__(self, work, programs):
        self.work, self.programs, self.core = Path(work).resolve(), Path(programs).resolve(), max(os.sched_getaffinity(0))
        self.work.mkdir(parents=True, exist_ok=True)
        self.write_models(CASES[0])
        self.core_ms = self.measure()

    def write_models(self, case):
        wanted = [model for model in read(ROOT / "config/models.json")["models"] if model["name"] in MODELS]
        for model in wanted:
            model.update(file=str(ROOT / "models" / f"{model['name']}.pt"), slo_ms=case.slo_ms, rate=1, max_batch=1)
        write(self.work / "models.json", {"models": wanted})

    def run(self, *arguments):
        return subprocess.run([self.programs / "gpulet", *map(str, arguments)], check=True, stdout=subprocess.PIPE,
                              text=True).stdout

    def measure(self):
        """Milliseconds of the core's time for a request, by quotas of a half and a quarter as they will be; and the profile
        of a GPU that is so many times slower."""
        profiles = self.work / "profiles"
        self.run("profile", "run", "--device", f"cpu:{self.core}", "--models", self.work / "models.json", "--out",
                 profiles, "--name", "one-core", "--batches", 1, "--sizes", 25, 50, 100)
        with open(profiles / "one-core/latency.csv", encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(line for line in file if not line.startswith("#")))
        core_ms = {model: fmean(float(row["latency_ms"]) * int(row["partition"]) / 100 for row in rows
                                if row["model"] == model and row["partition"] != "100") for model in MODELS}
        lines = ["model,batch,partition,latency_ms"]
        lines += [f"{model},1,100,{GPU_SLOWER_THAN_CORE * ms:.6g}" for model, ms in core_ms.items()]
        (self.work / "slow-gpu.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
        self.run("profile", "import", "--name", "slow-gpu", "--latency", self.work / "slow-gpu.csv", "--out", profiles)
        return core_ms

    def site(self, case):
        self.write_models(case)
        control = {"set_point": SET_POINT, "least_cores": 0.05, "period_s": case.period_s}
        frontend = {"models": "models.json", "profiles": "profiles", "policy": "roma", "control": control}
        backend = {"node": "n0", "profiles": "profiles", "devices": [
            {"type": "slow-gpu", "partitioning": "simulated"},
            {"type": "one-core", "partitioning": "cpu_quota", "cores": [self.core]}]}
        return Site(self.programs, self.work, frontend, [backend])

    def rates(self, step):
        return {model: part * 1000 / self.core_ms[model] for model, part in zip(MODELS, STEPS[step])}

    def load(self, site, step):
        workload = self.work / f"load-{step}.json"
        write(workload, {"models": [{"name": model, "rate": rate, "slo_ms": PATIENCE_MS, "arrivals": "uniform"}
                                    for model, rate in self.rates(step).items()]})
        answer = site.gpulet("load", "--workload", workload, "--seconds", STEP_S, "--connections", 1, "--json")
        return json.loads(answer.stdout)


def cpu_seconds_of_proxies(backend_process):
    """The backend's processes with LibTorch: those with a quota of cores."""
    ticks = 0
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            name = Path(os.readlink(entry / "exe")).name
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has ended, or belongs to another user
        if name == "gpulet-proxy" and int(fields[1]) == backend_process:
            ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


class Watch(threading.Thread):
    """A row per second: time, and the control status of each model from the frontend."""

    def __init__(self, site, began):
        super().__init__(daemon=True)
        self.site, self.began, self.rows, self.ended = site, began, [], threading.Event()

    def run(self):
        backend = self.site.daemons[1].pid
        while not self.ended.wait(max(0.0, self.began + len(self.rows) + 1 - time.monotonic())):
            status = self.site.status()
            models = {model["name"]: model["control"] for model in status["models"]}
            self.rows.append((time.monotonic() - self.began, models, cpu_seconds_of_proxies(backend)))


def settled(rows, model):
    """Response times relative to the set point, without the seconds after each step; a list per step."""
    steps = [[] for _ in STEPS]
    for time_s, models, _ in rows:
        if time_s % STEP_S > SETTLED_AFTER_S and time_s < STEP_S * len(STEPS):
            steps[int(time_s // STEP_S)].append(models[model]["response_ms"] / models[model]["set_point_ms"])
    return steps


def means_of_steps(rows, model):
    means = [fmean(step) for step in settled(rows, model)]
    return f"{min(means):.2f} to {max(means):.2f}"


def report(rows):
    """The table's line of each model."""
    lines = []
    for model in MODELS:
        last = rows[-1][1][model]
        parts = [part for step in settled(rows, model) for part in step]
        lines.append([model, percent(sum(abs(part - 1) <= WITHIN for part in parts), len(parts), 0),
                      means_of_steps(rows, model), f"{fmean(parts):.2f}",
                      f"{last['violated_periods']} of {last['periods']}",
                      percent(last["on_cpu"], last["on_cpu"] + last["on_gpu"], 0)])
    return lines


def cores_used(rows):
    used = rows[-1][2] - rows[0][2]
    given = sum(rows[-1][1][model]["core_seconds"] - rows[0][1][model]["core_seconds"] for model in MODELS)
    return [f"{given:.0f}", percent(used, given, 0)]


def serve(bench, case):
    """A row per second, and the number of requests that were not answered."""
    site, unanswered = bench.site(case), 0
    try:
        site.wait_until_serving()
        watch = Watch(site, time.monotonic())
        watch.start()
        for step in range(len(STEPS)):
            said = bench.load(site, step)
            print(f"step {step}: " + ", ".join(f"{model['name']} {model['offered']} offered, {model['served']} served"
                                               for model in said["models"]), flush=True)
            unanswered += sum(model["offered"] - model["served"] for model in said["models"])
        watch.ended.set()
        watch.join()
    finally:
        site.stop()
    return watch.rows, unanswered


def draw(bench, case, rows, file):
    drawing, plots = pictures.figure(3, 1, width=9, height=6, sharex=True)
    times = [time_s for time_s, _, _ in rows]
    for model, colour in zip(MODELS, ("#31a354", "#3182bd")):
        steps = [bench.rates(step)[model] for step in range(len(STEPS))]
        plots[0].step([STEP_S * step for step in range(len(STEPS) + 1)], [*steps, steps[-1]], where="post", color=colour,
                      label=model)
        plots[1].plot(times, [models[model]["response_ms"] for _, models, _ in rows], color=colour, linewidth=1)
        plots[2].plot(times, [models[model]["cores_given"] for _, models, _ in rows], color=colour, linewidth=1)
    for part in (1 - WITHIN, 1 + WITHIN):
        plots[1].axhline(part * SET_POINT * case.slo_ms, color="black", linewidth=0.8, linestyle=":")
    for axes, label in zip(plots, ("requests/s", "response time, ms", "cores given")):
        axes.set_ylabel(label)
        axes.set_ylim(0, None)
    plots[0].legend(loc="center left", bbox_to_anchor=(1, 0.5), fontsize=8)
    plots[2].set_xlabel("time, s")
    pictures.save(drawing, file)


def write_results(bench, served, lines, results):
    results.csv("roma_processes.csv", [f"scripts/experiments --only {NAME}: steps of {STEP_S} s, set point {SET_POINT}"], [
        "slo_ms", "period_s", "time_s",
        *(f"{model} {what}" for model in MODELS for what in ("response_ms", "cores", "on_gpu")), "cpu_seconds"], [
        [case.slo_ms, case.period_s, f"{time_s:.2f}",
         *(f"{models[model][what]:.6g}" for model in MODELS for what in ("response_ms", "cores_given", "gpu_part")),
         f"{cpu_s:.2f}"] for case, rows in served.items() for time_s, models, cpu_s in rows])
    results.table("roma-processes", COLUMNS, lines)
    first = next(iter(served))
    draw(bench, first, served[first], results.plot("roma_processes"))


def missing(programs):
    files = [ROOT / "models" / f"{model}.pt" for model in MODELS]
    files += [Path(programs) / name for name in ("gpulet-frontend", "gpulet-backend", "gpulet-proxy")]
    return [str(file) for file in files if not file.is_file()]


def run(measured, _, results, quick):
    programs = Path(measured.gpulet).parent
    if quick or missing(programs):
        print(f"    {NAME}: skipped; it takes real time, and needs {', '.join(missing(programs)) or 'an idle machine'}",
              flush=True)
        return
    bench = Bench(measured.work / "roma_processes", programs)
    served, lines, unanswered = {}, [], 0
    for case in CASES:
        served[case], lost = serve(bench, case)
        unanswered += lost
        rows, cores = served[case], cores_used(served[case])
        lines += [[f"{case.slo_ms} ms, {case.period_s:g} s", *line, *cores] for line in report(rows)]
        for model in MODELS:
            results.value(f"{NAME}-{case.slo_ms}-{case.period_s:g}-{model}", means_of_steps(rows, model))
    results.value(f"{NAME}-unanswered", unanswered)
    write_results(bench, served, lines, results)
