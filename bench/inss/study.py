#!/usr/bin/python3
"""Repeats InSS's evaluation: the numbers, tables and figures of docs/experiments/inss.md.

    bench/inss/study.py [--build build/release] [--data profiles/reference-gpu] [--work build/inss_study]
                        [--episodes N] [--only train,serve] [--jobs N]

Makes two types of devices of the measured one (the second as much slower as the paper's cards are to one another),
trains a policy for each cluster (`gpulet train`: half an hour each at most; a policy that is there is not trained
again), and sends waves of load through `gpulet simulate` under every policy, three seeds each. Needs matplotlib.
"""
import argparse
import json
import math
import subprocess
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

# Two RTX 2060 Super and two RTX 2060 (section 6.1): 34 and 30 multiprocessors, 8 and 6 GB.
FAST, SLOW, SLOWER_BY = "card-34", "card-30", 34 / 30
MEMORY_MB = {FAST: 8000, SLOW: 6000}
SIZES, MOST_PARTITIONS = [20, 40, 50, 60, 80, 100], 4
SIX = ("densenet121", "inception", "mobilenet", "resnet50", "resnet101", "vgg19")
EIGHT = (*SIX, "densenet169", "vgg16")
# Weights of the published models in MB of 32-bit floats, and 500 MB of a process's context.
WEIGHTS_MB = {"densenet121": 32, "densenet169": 57, "inception": 104, "mobilenet": 14, "resnet50": 98,
              "resnet101": 170, "vgg16": 528, "vgg19": 548}
CONTEXT_MB = 500
SLO_OF_BATCH, LARGEST_BATCH = 32, 32
# Each model's rate is a wave between this fraction of its highest rate and the whole.
TROUGH = 0.05
SECONDS, STEP_S = 600, 10
LOADS = (0.85, 1.0, 1.15)
SEEDS = (1, 2, 3)
STEPS = 50  # of an episode
# The fraction of all highest rates that `cover` just places on the four devices: the peak of the waves' sum is about
# three quarters of the sum of the peaks.
PEAK_OF_SUM = 0.75


@dataclass(frozen=True)
class Case:
    """Models on a cluster and the policy trained for it."""
    name: str
    models: tuple
    devices: int
    interference: bool = True


@dataclass(frozen=True)
class Choice:
    name: str
    policy: str
    devices: int
    interference: bool = True


SIX_CASE = Case("six", SIX, 4)
CASES = (SIX_CASE, Case("six-ni", SIX, 4, interference=False), Case("eight-4", EIGHT, 4), Case("eight-5", EIGHT, 5))
RULES = ("elastic", "elastic-batch-search", "guided-self-tuning", "igniter", "cover")
COLOURS = {"inss": "#d95f0e", "inss-ni": "#fdae6b", "inss_4": "#d95f0e", "inss_5": "#a63603", "elastic": "#3182bd",
           "elastic-batch-search": "#9ecae1", "guided-self-tuning": "#e3c79b", "igniter": "#756bb1", "cover": "#31a354"}


class Files(Folder):
    """Profiles, clusters, demands and traces below one folder."""

    def __init__(self, options):
        super().__init__(options.work)
        self.gpulet, self.data = options.bin / "gpulet", options.data
        self.latency = {}
        for row in read_csv(self.data / "latency.csv"):
            self.latency.setdefault(row["model"], {})[int(row["batch"]), int(row["partition"])] = \
                float(row["latency_ms"])

    def scaled(self, table, factor):
        rows = read_csv(self.data / f"{table}.csv")
        for row in rows:
            if "latency_ms" in row:
                row["latency_ms"] = f"{float(row['latency_ms']) * factor:.6g}"
        text = [",".join(rows[0])] + [",".join(row.values()) for row in rows]
        return self.write(f"tables/{table}-{factor:.4g}.csv", "\n".join(text) + "\n")

    def profiles(self):
        for kind, factor in ((FAST, 1), (SLOW, SLOWER_BY)):
            folder = self.work / "profiles" / kind
            if not (folder / "profile.json").exists():
                run_json([self.gpulet, "profile", "import", "--name", kind, "--latency", self.scaled("latency", factor),
                          "--utilization", self.scaled("utilization", factor), "--interference",
                          self.scaled("interference", factor), "--out", self.work / "profiles", "--json"])
            profile = json.loads((folder / "profile.json").read_text(encoding="utf-8"))
            profile["models"] = {model: {"memory_mb": CONTEXT_MB + size} for model, size in WEIGHTS_MB.items()}
            self.write_json(folder / "profile.json", profile)
        return self.work / "profiles"

    def cluster(self, devices):
        """Alternating fast and slow devices, two on the first node as in the paper."""
        nodes = [{"name": f"n{number}", "devices": [
            {"type": FAST if number % 2 == 0 else SLOW, "count": 1, "partitioning": "simulated", "sizes": SIZES,
             "max_partitions": MOST_PARTITIONS, "memory_mb": MEMORY_MB[FAST if number % 2 == 0 else SLOW]}]}
            for number in range(devices)]
        return self.write_json(f"cluster-{devices}.json", {"nodes": nodes})

    def slo_ms(self, model):
        return round(2 * self.latency[model][SLO_OF_BATCH, 100], 3)

    def demand(self, name, rates):
        return self.write_json(f"demand-{name}.json", {"models": [
            {"name": model, "rate": rate, "slo_ms": self.slo_ms(model), "max_batch": LARGEST_BATCH}
            for model, rate in rates.items()]})

    def planning(self, demand, devices, interference=True):
        return ["--cluster", self.cluster(devices), "--profiles", self.work / "profiles", "--demand", demand,
                *([] if interference else ["--no-interference"])]


def shares_of_load(files, models):
    """Relative rates: each takes the same fraction of a whole device's time."""
    return {model: LARGEST_BATCH / files.latency[model][LARGEST_BATCH, 100] for model in models}


def highest_rates(files, models, devices=4):
    """The highest rates of which `cover` places PEAK_OF_SUM."""
    file = files.work / f"highest-{len(models)}.json"
    if file.exists():
        return json.loads(file.read_text(encoding="utf-8"))
    low, high = 1.0, 2000.0
    for _ in range(14):
        scale = math.sqrt(low * high)
        rates = {model: round(scale * share, 3) for model, share in shares_of_load(files, models).items()}
        demand = files.demand(f"search-{len(models)}", {model: PEAK_OF_SUM * rate for model, rate in rates.items()})
        plan = run_json([files.gpulet, "schedule", *files.planning(demand, devices), "--policy", "cover", "--json"],
                        may_be_unschedulable=True)
        low, high = (scale, high) if plan["schedulable"] else (low, scale)
    rates = {model: round(low * share, 3) for model, share in shares_of_load(files, models).items()}
    files.write_json(file, rates)
    return rates


# ---- training

def train(options, files, results):
    def one(case):
        demand = files.demand(f"train-{case.name}", highest_rates(files, case.models))
        out = files.work / f"{case.name}.policy"
        if out.exists():
            return
        command = [files.gpulet, "train", *files.planning(demand, case.devices), "--episodes",
                   options.episodes, "--steps", STEPS, "--seed", 1, "--threads", 1, "--out", out, "--json"]
        if not case.interference:
            command.append("--no-interference")
        print(f"==> gpulet train, {case.name}", flush=True)
        with open(files.work / f"{case.name}.log", "w", encoding="utf-8") as log:
            subprocess.run([*map(str, command)], check=True, stdout=log, stderr=subprocess.DEVNULL)

    with ThreadPoolExecutor(options.jobs) as pool:
        list(pool.map(one, CASES))
    for case in CASES:
        rows = read_csv(files.work / f"{case.name}.csv")
        results.csv(f"inss_training_{case.name}.csv".replace("-", "_"),
                    [f"gpulet train --cluster cluster-{case.devices}.json --demand train-{case.name}.json --episodes "
                     f"{options.episodes} --steps {STEPS} --seed 1{'' if case.interference else ' --no-interference'}"],
                    rows[0].keys(), [row.values() for row in rows])


# ---- serving

def wave(model_index, count, time_s):
    """Periods from three to ten minutes with spread phases, so that peaks rarely coincide."""
    period_s = 180 + 420 * model_index / max(count - 1, 1)
    phase = model_index * 0.618
    return 0.5 + 0.5 * math.sin(2 * math.pi * (time_s / period_s + phase))


def trace(files, models, load):
    highest = highest_rates(files, models)
    lines = ["time_s,model,rate"]
    for time_s in range(0, SECONDS, STEP_S):
        for index, model in enumerate(models):
            part = TROUGH + (1 - TROUGH) * wave(index, len(models), time_s)
            lines.append(f"{time_s},{model},{load * part * highest[model]:.3f}")
    return files.write(f"trace-{len(models)}-{load}.csv", "\n".join(lines) + "\n")


def choices(models):
    if models == SIX:
        learned = [Choice("inss", f"inss:{SIX_CASE.name}", 4), Choice("inss-ni", "inss:six-ni", 4, False)]
        return learned + [Choice(rule, rule, 4) for rule in RULES]
    learned = [Choice("inss_4", "inss:eight-4", 4), Choice("inss_5", "inss:eight-5", 5)]
    return learned + [Choice(rule, rule, 6) for rule in RULES]


def simulate(files, models, choice, load, seed):
    highest = highest_rates(files, models)
    demand = files.demand(f"{len(models)}", highest)
    policy = choice.policy
    if policy.startswith("inss:"):
        policy = f"inss:{files.work / policy.removeprefix('inss:')}.policy"
    series = files.work / f"series-{len(models)}-{choice.name}-{load}-{seed}.csv"
    document = run_json([*map(str, [
        files.gpulet, "simulate", *files.planning(demand, choice.devices, choice.interference), "--policy", policy,
        "--trace", trace(files, models, load), "--seconds", SECONDS, "--seed", seed, "--series", series, "--json"])])
    return document, read_csv(series)


def serve(options, files, results):
    runs = [(models, choice, load, seed) for models in (SIX, EIGHT) for choice in choices(models) for load in LOADS
            for seed in SEEDS]
    for models in (SIX, EIGHT):
        for load in LOADS:
            trace(files, models, load)  # written once, before several threads read it
    with ThreadPoolExecutor(options.jobs) as pool:
        outcomes = list(pool.map(lambda run: simulate(files, *run), runs))
    rows, shown = [], []
    for (models, choice, load, seed), (document, series) in zip(runs, outcomes):
        offered = sum(model["offered"] for model in document["models"])
        late = sum(model["late"] for model in document["models"])
        dropped = sum(model["dropped"] for model in document["models"])
        in_time = sum(model["served"] for model in document["models"]) - late
        share = sum(float(row["share_percent"]) for row in series) / len(series)
        rows.append([len(models), choice.name, load, seed, offered / SECONDS, in_time / SECONDS, late / offered,
                     dropped / offered, document["violation"], document["devices_mean"], share])
        if load == LOADS[-1] and seed == SEEDS[0]:
            shown += [[len(models), choice.name, row["time_s"], (int(row["offered"]) - int(row["violations"])),
                       row["share_percent"], row.get("resnet50 batch planned"), row.get("resnet50 batch run")]
                      for row in series]
    results.csv("inss_serving.csv", [
        f"gpulet simulate --policy POLICY --trace (LOAD times the waves) --seconds {SECONDS} --seed SEED --json"],
        ["models", "policy", "load", "seed", "offered_rate", "in_time_rate", "late", "dropped", "violation",
         "devices_mean", "share_percent"], rows)
    results.csv("inss_series.csv", [f"the same with --series, load {LOADS[-1]}, seed {SEEDS[0]}"],
                ["models", "policy", "time_s", "in_time", "share_percent", "resnet50_batch_planned",
                 "resnet50_batch_run"], shown)


# ---- drawing

def names_of(rows, models):
    return list(dict.fromkeys(row["policy"] for row in rows if row["models"] == models))


def value_of(rows, models, policy, load, column):
    return fmean(float(row[column]) for row in rows
                 if (row["models"], row["policy"], row["load"]) == (models, policy, load))


def draw_training(results, files_of):
    drawing, plots = pictures.figure(3, 1, width=9, height=6, sharex=True)
    for name, colour in (("six", "#d95f0e"), ("six_ni", "#fdae6b"), ("eight_4", "#3182bd"), ("eight_5", "#08519c")):
        rows = read_csv(files_of / f"inss_training_{name}.csv")
        at = [int(row["episode"]) for row in rows]
        for axes, column, factor in zip(plots, ("reward", "violation", "throughput"), (1, 100, 1)):
            values = [factor * float(row[column]) for row in rows]
            smooth = [fmean(values[max(0, place - 19):place + 1]) for place in range(len(values))]
            axes.plot(at, smooth, color=colour, linewidth=1, label=name.replace("_", "-"))
    for axes, label in zip(plots, ("reward of a step", "violations, %", "in time, requests/s")):
        axes.set_ylabel(label)
    plots[1].set_yscale("symlog", linthresh=1)
    plots[0].legend(loc="center left", bbox_to_anchor=(1, 0.5), fontsize=8)
    plots[2].set_xlabel("episode (mean of the last twenty)")
    pictures.save(drawing, results.plot("inss_training"))


def draw_throughput(results, rows, models):
    names = names_of(rows, models)
    loads = sorted({row["load"] for row in rows}, key=float)
    drawing, axes = pictures.figure(width=9, height=3)
    values = {name: [value_of(rows, models, name, load, "in_time_rate") for load in loads] for name in names}
    pictures.grouped_bars(axes, [f"load {load}" for load in loads], names, values, COLOURS)
    for place, load in enumerate(loads):
        offered = value_of(rows, models, names[0], load, "offered_rate")
        axes.plot([place - 0.42, place + 0.42], [offered, offered], color="black", linewidth=0.8, linestyle=":")
    axes.set_ylabel("in time, requests/s")
    axes.legend(loc="center left", bbox_to_anchor=(1, 0.5), fontsize=8)
    pictures.save(drawing, results.plot(f"inss_throughput_{models}"))


def draw_violations(results, rows, models):
    names = names_of(rows, models)
    loads = sorted({row["load"] for row in rows}, key=float)
    drawing, plots = pictures.figure(1, len(loads), width=9, height=3, sharey=True)
    for axes, load in zip(plots, loads):
        late = [100 * value_of(rows, models, name, load, "late") for name in names]
        whole = [100 * value_of(rows, models, name, load, "violation") for name in names]
        axes.bar(range(len(names)), whole, color="#fdae6b", label="dropped")
        axes.bar(range(len(names)), late, color="#d95f0e", label="late")
        axes.axhline(1, color="black", linewidth=0.8, linestyle=":")
        axes.set_xticks(range(len(names)), names, rotation=60, ha="right", fontsize=7)
        axes.set_title(f"load {load}")
    plots[0].set_yscale("symlog", linthresh=1)
    plots[0].set_yticks([0, 0.5, 1, 10, 100], ["0", "0.5", "1", "10", "100"])
    plots[0].set_ylabel("violations, %")
    plots[0].legend(fontsize=8)
    pictures.save(drawing, results.plot(f"inss_violations_{models}"))


def draw_over_time(results, series, models, column, label, name):
    drawing, axes = pictures.figure(width=9, height=3)
    for policy in names_of(series, models):
        rows = [row for row in series if (row["models"], row["policy"]) == (models, policy)]
        axes.plot([float(row["time_s"]) for row in rows], [float(row[column]) for row in rows],
                  color=COLOURS[policy], linewidth=1.2, label=policy)
    axes.set_xlabel("time, s")
    axes.set_ylabel(label)
    axes.set_ylim(0, None)
    axes.legend(loc="center left", bbox_to_anchor=(1, 0.5), fontsize=8)
    pictures.save(drawing, results.plot(name))


def draw_batches(results, series):
    drawing, plots = pictures.figure(1, 2, width=9, height=2.8, sharey=True)
    for axes, policy in zip(plots, ("inss", "elastic")):
        rows = [row for row in series if (row["models"], row["policy"]) == ("6", policy)]
        times = [float(row["time_s"]) for row in rows]
        for column, colour in (("planned", "#3182bd"), ("run", "#d95f0e")):
            axes.plot(times, [float(row[f"resnet50_batch_{column}"]) for row in rows], color=colour, linewidth=1.2,
                      label=column)
        axes.set_title(policy)
        axes.set_xlabel("time, s")
    plots[0].set_ylabel("batch of resnet50")
    plots[0].legend(fontsize=8)
    pictures.save(drawing, results.plot("inss_batches"))


def tables(results, rows):
    for models in ("6", "8"):
        lines = []
        for name in names_of(rows, models):
            line = [name]
            for load in sorted({row["load"] for row in rows}, key=float):
                line += [f"{value_of(rows, models, name, load, 'in_time_rate'):.0f}",
                         f"{100 * value_of(rows, models, name, load, 'violation'):.2f} %"]
            line += [f"{value_of(rows, models, name, str(LOADS[-1]), 'devices_mean'):.1f}"]
            lines.append(line)
        columns = ["policy"]
        for load in LOADS:
            columns += [f"in time/s at {load}", f"violations at {load}"]
        results.table(f"inss-{models}", [*columns, f"devices at {LOADS[-1]}"], lines)


STUDIES = {"train": train, "serve": serve}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, default=ROOT / "build/release")
    parser.add_argument("--data", type=Path, default=ROOT / "profiles/reference-gpu")
    parser.add_argument("--work", type=Path, default=ROOT / "build/inss_study")
    parser.add_argument("--out", type=Path, default=ROOT / "docs/experiments")
    parser.add_argument("--episodes", type=int, default=800)
    parser.add_argument("--only", default=",".join(STUDIES))
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    options.bin = options.build.resolve() / "bin"
    options.work.mkdir(parents=True, exist_ok=True)
    results = Results(options.out)
    files = Files(options)
    files.profiles()
    for devices in (4, 5, 6):
        files.cluster(devices)
    for models in (SIX, EIGHT):
        highest_rates(files, models)
    for name in filter(None, options.only.split(",")):
        STUDIES[name](options, files, results)
    draw_training(results, options.out)
    if not (options.out / "inss_serving.csv").exists():
        return  # nothing was served yet
    rows, series = read_csv(options.out / "inss_serving.csv"), read_csv(options.out / "inss_series.csv")
    for models in ("6", "8"):
        draw_throughput(results, rows, models)
        draw_violations(results, rows, models)
    step = f"in time, in {STEP_S * 2} s"
    draw_over_time(results, series, "6", "in_time", step, "inss_throughput_over_time")
    draw_over_time(results, series, "8", "share_percent", "sum of shares, %", "inss_shares")
    draw_batches(results, series)
    tables(results, rows)
    results.fill_page("inss.md")


if __name__ == "__main__":
    main()
