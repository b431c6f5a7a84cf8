#!/usr/bin/python3
"""Repeats ROMA's evaluation in the simulator: the numbers, tables and figures of docs/experiments/roma.md.

    bench/roma/study.py [--build build/release] [--work build/roma_study] [--out docs/experiments] [--jobs N]

Two worker nodes with a GPU and six cores each serve the paper's applications with its objectives and its steps of
load (table 1), under its five systems, three seeds each (table 2, figure 2). The paper does not tell how long requests
take; what is assumed here is in SERVICE, and written into every result. Needs matplotlib.
"""
import argparse
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts/experiments.d"))

from files import Folder, read_csv  # noqa: E402
import pictures  # noqa: E402  (scripts/experiments.d)
from program import run_json  # noqa: E402
from results import Results  # noqa: E402


@dataclass(frozen=True)
class Service:
    """The cost of a request: ms on the GPU, and core-seconds on a CPU."""
    gpu_ms: float
    core_s: float


# The models are ordered by their arithmetic. Their sizes are chosen so that the paper's loads need of two GPUs what its
# results suggest: slightly more than their capacity at most steps of the first test, and 1.5 times as much at the peaks
# of the others.
SERVICE = {"skylines": Service(24, 0.10), "googlenet": Service(20, 0.12), "resnet": Service(35, 0.25),
           "vgg16": Service(45, 0.50)}
# The part of a request's work that runs on one core.
SERIAL = 0.05
CORES, NODES = 6, 2

# Table 1.
STEP_S, SECONDS = 35, 300
SLO_MS = {"skylines": 380, "googlenet": 450, "resnet": 540, "vgg16": 560}
TESTS = {
    "2-Apps (Skylines, G.Net)": {"skylines": (20, 20, 80, 80, 20, 20, 20, 20),
                                 "googlenet": (20, 20, 20, 20, 70, 70, 20, 20)},
    "2-Apps (ResNet, VGG16)": {"resnet": (40, 30, 20, 40, 30, 20, 30, 30), "vgg16": (20, 30, 40, 20, 40, 40, 30, 30)},
    "AllApps": {"skylines": (10, 10, 10, 10, 30, 30, 30, 10), "googlenet": (10, 30, 30, 30, 10, 10, 10, 10),
                "resnet": (10, 20, 30, 10, 20, 30, 10, 20), "vgg16": (10, 30, 20, 10, 30, 20, 10, 20)},
}
# Section 5: beta 0.5, gamma 0, no cores reserved for GPUs. The paper's alpha is 0.8. Here the response times of single
# seconds are controlled; they scatter around their set point, which must be lower to keep them below the objective.
ALPHA, PAPERS_ALPHA = 0.4, 0.8
LEAST_CORES = 0.25  # of an executable: what RR+min gives four of them
SYSTEMS = {
    "ROMA": {"gpu": "need", "cores": "feedback"},
    "ROMA, every 0.5 s": {"gpu": "need", "cores": "feedback", "period_s": 0.5},
    "ROMA, alpha 0.8": {"gpu": "need", "cores": "feedback", "set_point": PAPERS_ALPHA},
    "ROMA, alpha 0.3": {"gpu": "need", "cores": "feedback", "set_point": 0.3},
    "RR+CT": {"gpu": "round-robin", "cores": "feedback"},
    "RR+rules": {"gpu": "round-robin", "cores": "steps"},
    "RR+max": {"gpu": "round-robin", "cores": "all"},
    "RR+min": {"gpu": "round-robin", "cores": "least"},
}
WINDOW_S = 10  # the paper's counts of violations are all multiples of ten
# Table 2 of the paper: mean, most and deviation of the response time in seconds, violations, core-seconds.
PAPER = {
    ("2-Apps (Skylines, G.Net)", "ROMA"): (0.168, 0.245, 0.031, 0, 748),
    ("2-Apps (Skylines, G.Net)", "RR+CT"): (0.193, 0.358, 0.053, 0, 793),
    ("2-Apps (Skylines, G.Net)", "RR+rules"): (0.185, 0.638, 0.075, 10, 1165),
    ("2-Apps (Skylines, G.Net)", "RR+max"): (0.152, 0.191, 0.014, 0, 3600),
    ("2-Apps (Skylines, G.Net)", "RR+min"): (0.278, 1.053, 0.182, 40, 600),
    ("2-Apps (ResNet, VGG16)", "ROMA"): (0.266, 0.553, 0.068, 10, 1633),
    ("2-Apps (ResNet, VGG16)", "RR+CT"): (0.446, 0.949, 0.117, 70, 1750),
    ("2-Apps (ResNet, VGG16)", "RR+rules"): (0.701, 3.829, 0.528, 120, 1691),
    ("2-Apps (ResNet, VGG16)", "RR+max"): (0.337, 0.711, 0.092, 40, 3600),
    ("2-Apps (ResNet, VGG16)", "RR+min"): (1.537, 4.423, 0.464, 180, 600),
    ("AllApps", "ROMA"): (0.167, 0.427, 0.022, 0, 1767),
    ("AllApps", "RR+CT"): (0.325, 1.372, 0.130, 90, 2018),
    ("AllApps", "RR+rules"): (0.409, 1.913, 0.158, 140, 1973),
    ("AllApps", "RR+max"): (0.208, 0.453, 0.052, 0, 3600),
    ("AllApps", "RR+min"): (1.032, 6.828, 0.414, 170, 600),
}
SEEDS = (1, 2, 3)
# Gpulets and instances together: a batch of n on a GPU takes (1 + n) / 2 times as long as one request, plans are
# elastic's, and the load is AllApps' times these.
SPILL_LOADS = (1, 1.25, 1.5, 2)
LARGEST_BATCH = 8
COLOURS = {"skylines": "#3182bd", "googlenet": "#31a354", "resnet": "#d95f0e", "vgg16": "#756bb1"}


class Files(Folder):
    """Profiles, cluster, demands, traces and control files below one folder."""

    def __init__(self, options):
        super().__init__(options.work)
        self.gpulet = options.build.resolve() / "bin/gpulet"

    def profiles(self):
        """The GPU as a whole, and the CPU with one to all of its cores: below one core a quota is as slow as it is
        small, which the simulator knows."""
        tables = {name: ["model,batch,partition,latency_ms"] for name in ("worker-gpu", "worker-cpu", "spill-gpu")}
        for model, service in SERVICE.items():
            tables["worker-gpu"].append(f"{model},1,100,{service.gpu_ms}")
            for batch in (1, 2, 4, LARGEST_BATCH):
                for share in (20, 40, 60, 80, 100):
                    latency_ms = service.gpu_ms * (1 + batch) / 2 * 100 / share
                    tables["spill-gpu"].append(f"{model},{batch},{share},{latency_ms:.6g}")
            for cores in range(1, CORES + 1):
                latency_ms = 1000 * service.core_s * (SERIAL + (1 - SERIAL) / cores)
                tables["worker-cpu"].append(f"{model},1,{round(100 * cores / CORES)},{latency_ms:.6g}")
        for name, lines in tables.items():
            table = self.write(f"{name}.csv", "\n".join(lines) + "\n")
            run_json([self.gpulet, "profile", "import", "--name", name, "--latency", table, "--out",
                      self.work / "profiles", "--json"])

    def cluster(self):
        cpu = {"type": "worker-cpu", "partitioning": "simulated", "core_count": CORES}
        shared = {"type": "spill-gpu", "partitioning": "simulated", "sizes": [20, 40, 60, 80, 100], "max_partitions": 4}
        for name, devices in (("cluster", [{"type": "worker-gpu", "partitioning": "simulated"}, cpu]),
                              ("cluster-gpus", [shared]), ("cluster-spill", [shared, cpu])):
            self.write_json(f"{name}.json", {"nodes": [{"name": f"worker{node}", "devices": devices}
                                                       for node in range(NODES)]})

    def test(self, number, loads):
        self.write_json(f"demand-{number}.json", {"models": [
            {"name": model, "rate": rates[0], "slo_ms": SLO_MS[model], "max_batch": 1}
            for model, rates in loads.items()]})
        lines = ["time_s,model,rate"]
        for step in range(len(next(iter(loads.values())))):
            lines += [f"{step * STEP_S},{model},{rates[step]}" for model, rates in loads.items()]
        self.write(f"trace-{number}.csv", "\n".join(lines) + "\n")

    def control(self, system, seed):
        name = f"control-{system.replace('+', '-').replace(', ', '-')}-{seed}.json"
        self.write_json(name, {"set_point": ALPHA, "queued_weight": 0.5, "surplus": 0, "gpu_cores": 0,
                               "least_cores": LEAST_CORES, "seed": seed, **SYSTEMS[system]})
        return self.work / name

    def simulate(self, number, system, seed):
        series = self.work / f"series-{number}-{system}-{seed}.csv"
        document = run_json([*map(str, [self.gpulet, "simulate", "--cluster", self.work / "cluster.json", "--profiles",
                             self.work / "profiles", "--demand", self.work / f"demand-{number}.json", "--policy", "roma",
                             "--control", self.control(system, seed), "--trace", self.work / f"trace-{number}.csv",
                             "--seconds", SECONDS, "--seed", seed, "--period", 1, "--series", series, "--json"])])
        return document, read_csv(series)


def violated_windows(model, series):
    """Seconds in windows of ten whose requests took longer than the objective in the mean."""
    violated = 0
    for start in range(0, len(series), WINDOW_S):
        window = [(float(row[f"{model} response_ms"]), int(row[f"{model} offered"]))
                  for row in series[start:start + WINDOW_S]]
        count = sum(offered for response, offered in window if response > 0)
        total = sum(response * offered for response, offered in window if response > 0)
        violated += WINDOW_S if count and total / count > SLO_MS[model] else 0
    return violated


def spill(files, load, spills, seed):
    """Violations of elastic's plans with the CPUs' help or without it."""
    loads = TESTS["AllApps"]
    name = f"spill-{load}"
    files.write_json(f"demand-{name}.json", {"models": [
        {"name": model, "rate": load * rates[0], "slo_ms": SLO_MS[model], "max_batch": LARGEST_BATCH}
        for model, rates in loads.items()]})
    lines = ["time_s,model,rate"]
    for step in range(len(loads["vgg16"])):
        lines += [f"{step * STEP_S},{model},{load * rates[step]}" for model, rates in loads.items()]
    files.write(f"trace-{name}.csv", "\n".join(lines) + "\n")
    control = files.write_json(f"control-spill-{seed}.json", {"spill": True, "least_cores": LEAST_CORES, "seed": seed})
    document = run_json([*map(str, [
        files.gpulet, "simulate", "--cluster", files.work / f"cluster-{'spill' if spills else 'gpus'}.json", "--profiles",
        files.work / "profiles", "--demand", files.work / f"demand-{name}.json", "--policy", "elastic", "--trace",
        files.work / f"trace-{name}.csv", "--seconds", SECONDS, "--seed", seed, "--json",
        *(["--control", control] if spills else [])])])
    answered = sum(model["served"] for model in document["models"])
    on_cpu = sum(model["control"]["on_cpu"] for model in document["models"] if "control" in model)
    core_s = sum(model["control"]["core_seconds"] for model in document["models"] if "control" in model)
    return [load, int(spills), seed, document["violation"], on_cpu / answered, core_s]


def study_spill(options, results, files):
    wanted = [(load, spills, seed) for load in SPILL_LOADS for spills in (False, True) for seed in SEEDS]
    with ThreadPoolExecutor(options.jobs) as pool:
        rows = list(pool.map(lambda run: spill(files, *run), wanted))
    results.csv("roma_spill.csv", ["gpulet simulate --policy elastic --trace (LOAD times AllApps) [--control SPILL.json]"],
                ["load", "spill", "seed", "violation", "on_cpu", "core_seconds"], rows)
    lines = []
    for load in SPILL_LOADS:
        alone, helped = ([row for row in rows if row[:2] == [load, spills]] for spills in (0, 1))
        lines.append([f"{load:g}", f"{100 * fmean(row[3] for row in alone):.2f} %",
                      f"{100 * fmean(row[3] for row in helped):.2f} %", f"{100 * fmean(row[4] for row in helped):.1f} %",
                      f"{fmean(row[5] for row in helped):.0f}"])
        print("spill", *lines[-1])
    results.table("roma-spill", ["load", "violations, GPUs alone", "with CPUs to spill to", "answered by CPUs",
                                 "core-seconds"], lines)


def figures(loads, document, series):
    """The values of table 2 from the means of each second, over all applications."""
    means = [float(row[f"{model} response_ms"]) for model in loads for row in series
             if float(row[f"{model} response_ms"]) > 0]
    mean = sum(means) / len(means)
    deviation = (sum((value - mean) ** 2 for value in means) / len(means)) ** 0.5
    control = [model["control"] for model in document["models"]]
    violations = sum(float(row[f"{model} response_ms"]) > SLO_MS[model] for model in loads for row in series)
    answered = sum(one["on_gpu"] + one["on_cpu"] for one in control)
    return {"mean_ms": mean, "most_ms": max(means), "deviation_ms": deviation, "violations": violations,
            "violations_of_windows": sum(violated_windows(model, series) for model in loads),
            "core_seconds": sum(one["core_seconds"] for one in control),
            "gpu_part": sum(one["on_gpu"] for one in control) / answered,
            "requests_late": sum(model["late"] + model["dropped"] for model in document["models"]) / answered}


def draw(results, number, loads, runs):
    """Figure 2: response times per second with the objectives, and the granted cores."""
    systems = ("ROMA", "RR+rules")
    drawing, plots = pictures.figure(3, 2, width=9, height=6, sharex=True, sharey="row")
    for column, system in enumerate(systems):
        series = runs[number, system, SEEDS[0]][1]
        times = [float(row["time_s"]) for row in series]
        for model, rates in loads.items():
            colour = COLOURS[model]
            plots[0][column].step([*(STEP_S * step for step in range(len(rates))), SECONDS], [*rates, rates[-1]],
                                  where="post", color=colour, linewidth=1.2, label=model)
            plots[1][column].plot(times, [float(row[f"{model} response_ms"]) for row in series], color=colour,
                                  linewidth=1)
            plots[1][column].axhline(SLO_MS[model], color=colour, linewidth=0.7, linestyle=":")
            plots[2][column].plot(times, [float(row[f"{model} cores"]) for row in series], color=colour, linewidth=1)
        plots[0][column].set_title(system)
        plots[1][column].set_yscale("log")
        plots[2][column].set_xlabel("time, s")
    for row, label in zip(plots, ("requests/s", "response time, ms", "cores, both nodes")):
        row[0].set_ylabel(label)
    plots[0][1].legend(loc="center left", bbox_to_anchor=(1, 0.5), fontsize=8)
    pictures.save(drawing, results.plot("roma_all_apps"))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, default=ROOT / "build/release")
    parser.add_argument("--work", type=Path, default=ROOT / "build/roma_study")
    parser.add_argument("--out", type=Path, default=ROOT / "docs/experiments")
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    results, files = Results(options.out), Files(options)
    files.profiles()
    files.cluster()
    for number, loads in enumerate(TESTS.values()):
        files.test(number, loads)
    wanted = [(number, system, seed) for number in range(len(TESTS)) for system in SYSTEMS for seed in SEEDS]
    with ThreadPoolExecutor(options.jobs) as pool:
        runs = dict(zip(wanted, pool.map(lambda run: files.simulate(*run), wanted)))
    rows, lines = [], []
    for number, (test, loads) in enumerate(TESTS.items()):
        for system in SYSTEMS:
            of_seeds = [figures(loads, *runs[number, system, seed]) for seed in SEEDS]
            rows += [[test, system, seed, *of.values()] for seed, of in zip(SEEDS, of_seeds)]
            paper = PAPER[test, system.split(",")[0]]
            lines.append([f"{test}, {system}", f"{fmean(of['mean_ms'] for of in of_seeds) / 1000:.3f}",
                          f"{max(of['most_ms'] for of in of_seeds) / 1000:.3f}",
                          f"{fmean(of['deviation_ms'] for of in of_seeds) / 1000:.3f}",
                          " ".join(str(of["violations"]) for of in of_seeds),
                          " ".join(str(of["violations_of_windows"]) for of in of_seeds),
                          f"{fmean(of['core_seconds'] for of in of_seeds):.0f}",
                          f"{100 * fmean(of['gpu_part'] for of in of_seeds):.0f} %",
                          f"{paper[0]} / {paper[1]} / {paper[2]}", paper[3], paper[4]])
    stated = "; ".join(f"{model} {one.gpu_ms:g} ms on a GPU, {one.core_s:g} core-seconds" for model, one in SERVICE.items())
    results.csv("roma_simulated.csv", ["gpulet simulate --policy roma --control SYSTEM.json --trace TEST.csv --seconds "
                                       f"{SECONDS} --period 1; {stated}; {SERIAL:g} of it serial"],
                ["test", "system", "seed", *figures(TESTS["AllApps"], *runs[2, "ROMA", 1]).keys()], rows)
    results.table("roma-simulated", ["test, system", "mean s", "most s", "deviation s", "seconds above SLA",
                                     "the same by tens", "core-seconds", "on GPU", "paper: mean / most / deviation",
                                     "violations", "core-seconds"], lines)
    draw(results, 2, TESTS["AllApps"], runs)
    study_spill(options, results, files)
    results.fill_page("roma.md")
    for line in lines:
        print("  ".join(f"{str(cell):>12}" for cell in line[:8]))


if __name__ == "__main__":
    main()
