#!/usr/bin/python3
"""Repeats MIG-serving's evaluation: the numbers, tables and figures of docs/experiments/mig.md.

    bench/mig/study.py [--build build/release] [--day-night build/day_night] [--only optimise,cover,..]

Runs bench_mig_optimise, `gpulet schedule` with cover, and `gpulet simulate`, and takes over what bench/mig/day_night.py
left in its folder. Needs matplotlib. About a minute.
"""
import argparse
import csv
import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts/experiments.d"))

import five_models  # noqa: E402
from files import read_csv  # noqa: E402
import pictures  # noqa: E402  (scripts/experiments.d)
from program import run_json  # noqa: E402
from results import Results  # noqa: E402

WORKLOADS = ("normal-1", "normal-2", "lognormal-1", "lognormal-2")
SECONDS, THREADS, GEOMETRY, SEED = 60, 2, "a100-40", 1
PROCESSES = (1, 2, 4)
# AWS, us-east-1, on demand: an eighth of a p4d.24xlarge, a g4dn.xlarge, an eighth of a g4dn.metal.
A100_DOLLARS, T4_DOLLARS, T4_OF_EIGHT_DOLLARS = 32.77 / 8, 0.526, 7.824 / 8
NAMES = {"whole": "7/7", "7x1": "7x1/7", "mix": "4-2-1", "greedy": "greedy", "two-phase": "two-phase", "cover": "cover",
         "bound-without-rules": "bound without rules", "t4": "T4"}
COLOURS = dict(zip(NAMES.values(),
                   ("#7f7f7f", "#b5b5b5", "#e3c79b", "#9ecae1", "#3182bd", "#31a354", "#636363", "#d95f0e")))
LOADS = (1.0, 1.1, 1.2, 1.3, 1.5)  # of what is required, until the most is served
SATURATED_S = 600


# ---- measuring

def optimise(options, results):
    commands, rows = [], []
    for processes in PROCESSES:
        command = ["bench_mig_optimise", "--csv", *map(str, (SECONDS, THREADS, GEOMETRY, SEED, processes))]
        commands.append(" ".join(command))
        print(f"==> {commands[-1]}", flush=True)
        done = subprocess.run([options.bin / command[0], *command[1:]], check=True, stdout=subprocess.PIPE, text=True)
        rows += list(csv.DictReader(done.stdout.splitlines()))
    results.csv("mig_optimise.csv", commands, rows[0].keys(), [row.values() for row in rows])


def cover(options, results):
    folder = options.work / "generated"
    print("==> gpulet schedule --policy cover", flush=True)
    subprocess.run([options.bin / "bench_mig_workload", folder], check=True)
    subprocess.run([options.bin / "gpulet", "profile", "import", "--name", "generated", "--latency",
                    folder / "latency.csv", "--mig", GEOMETRY, "--out", folder / "profiles"], check=True,
                   stdout=subprocess.DEVNULL)
    rows = []
    for workload in WORKLOADS:
        for policy in ("cover", "mig-two-phase"):
            plan = run_json([options.bin / "gpulet", "schedule", "--cluster", folder / "cluster.json", "--profiles",
                             folder / "profiles", "--demand", folder / f"{workload}.json", "--policy", policy,
                             "--headroom", "none", "--margin", "1", "--json"], may_be_unschedulable=True)
            rows.append([workload, policy, plan["devices_used"], plan.get("lower_bound", ""), plan["schedulable"],
                         round(plan["plan_time_us"] / 1e6, 3)])
            print(f"    {rows[-1]}", flush=True)
    results.csv("mig_cover.csv", ["bench_mig_workload DIR",
                                  "gpulet profile import --name generated --latency DIR/latency.csv --mig a100-40 "
                                  "--out DIR/profiles",
                                  "gpulet schedule --cluster DIR/cluster.json --profiles DIR/profiles --demand "
                                  "DIR/WORKLOAD.json --policy POLICY --headroom none --margin 1 --json"],
                ["workload", "policy", "devices", "lower_bound", "schedulable", "seconds"], rows)


def served_part(options, folder, name, rates, load, setting):
    """For each model: requests/s within the objective over the required ones, under that load."""
    trace = folder / f"{name}-{load}.csv"
    steps = "".join(f"0,{model},{rate * load}\n" for model, rate in rates.items())
    trace.write_text("time_s,model,rate\n" + steps, encoding="utf-8")
    document = run_json([options.bin / "gpulet", "simulate", "--cluster", folder / "cluster.json", "--profiles",
                         folder / "profiles", "--demand", folder / f"{name}.json", "--policy", "mig-two-phase",
                         "--keep-plan", "--trace", trace, "--seconds", str(SATURATED_S), "--seed", "1", *setting,
                         "--json"])
    return {row["name"]: (row["served"] - row["late"]) / SATURATED_S / rates[row["name"]]
            for row in document["models"]}


def satisfaction(options, results):
    folder = options.work / "five"
    five_models.prepare(folder, options.bin / "gpulet")
    settings = {"papers": ["--headroom", "none", "--margin", "1"], "defaults": []}
    rows = []
    for setting, flags in settings.items():
        for name, rates in (("day", five_models.DAY), ("night", five_models.NIGHT)):
            print(f"==> gpulet simulate, {name}, {setting}", flush=True)
            for load in LOADS:
                parts = served_part(options, folder, name, rates, load, [str(flag) for flag in flags])
                parts["all"] = sum(part * rates[model] for model, part in parts.items()) / sum(rates.values())
                rows += [[setting, name, load, model, parts[model]] for model in [*rates, "all"]]
    results.csv("mig_satisfaction.csv", [
        f"gpulet simulate --policy mig-two-phase --keep-plan --demand DAY_OR_NIGHT.json --trace (load times its rates) "
        f"--seconds {SATURATED_S} --seed 1 --json, papers: {' '.join(settings['papers'])}"],
        ["setting", "workload", "load", "model", "served_in_time_of_required"], rows)


def day_night(options, results):
    for file, name in (("actions.csv", "mig_actions.csv"), ("day_night.csv", "mig_day_night.csv")):
        if (options.day_night / file).is_file():
            rows = read_csv(options.day_night / file)
            results.csv(name, ["bench/mig/day_night.py"], rows[0].keys(), [row.values() for row in rows])


# ---- drawing

def devices_of(rows, workload, what, processes=1):
    for row in rows:
        if (row["workload"], row["what"], int(row["processes"]), row["round"]) == (workload, what, processes, ""):
            return float(row["devices"])
    raise KeyError(f"{workload}, {what}, {processes} processes: mig_optimise.csv has no such row")


def draw_devices(results, rows):
    drawing, axes = pictures.figure(width=9, height=3.4)
    shown = [what for what in NAMES if what not in ("t4", "cover")]
    values = {NAMES[what]: [devices_of(rows, workload, what) / devices_of(rows, workload, "whole")
                            for workload in WORKLOADS] for what in shown}
    pictures.grouped_bars(axes, WORKLOADS, [NAMES[what] for what in shown], values, COLOURS)
    for place, what in enumerate(shown):
        for group, workload in enumerate(WORKLOADS):
            at = group + (place - (len(shown) - 1) / 2) * 0.8 / len(shown)
            axes.text(at, values[NAMES[what]][group] + 0.01, f"{devices_of(rows, workload, what):.0f}", ha="center",
                      fontsize=6.5)
    axes.set_ylabel("devices, of those of 7/7")
    axes.set_ylim(0, 1.1)
    axes.legend(loc="center left", bbox_to_anchor=(1, 0.5), fontsize=8)
    pictures.save(drawing, results.plot("mig_devices"))


def draw_cost(results, rows):
    drawing, axes = pictures.figure(width=9, height=3)
    price = {"whole": A100_DOLLARS, "7x1": A100_DOLLARS, "two-phase": A100_DOLLARS, "t4": T4_DOLLARS}
    cost = {NAMES[what]: [devices_of(rows, workload, what) * dollars for workload in WORKLOADS]
            for what, dollars in price.items()}
    dear = "T4, of g4dn.metal"
    cost[dear] = [devices_of(rows, workload, "t4") * T4_OF_EIGHT_DOLLARS for workload in WORKLOADS]
    least = cost[NAMES["two-phase"]]
    cost = {name: [value / most for value, most in zip(values, least)] for name, values in cost.items()}
    pictures.grouped_bars(axes, WORKLOADS, list(cost), cost, {**COLOURS, dear: "#fdae6b"})
    axes.axhline(1, color="black", linewidth=0.8, linestyle=":")
    axes.set_ylabel("$/h, of those of two-phase")
    axes.legend(loc="center left", bbox_to_anchor=(1, 0.5), fontsize=8)
    pictures.save(drawing, results.plot("mig_cost"))


def draw_processes(results, rows):
    drawing, axes = pictures.figure(width=9, height=2.8)
    names = [f"{processes} process{'es' if processes > 1 else ''}" for processes in PROCESSES]
    values = {workload: [100 * (1 - devices_of(rows, workload, "two-phase", processes) /
                                devices_of(rows, workload, "whole", processes)) for processes in PROCESSES]
              for workload in WORKLOADS}
    pictures.grouped_bars(axes, names, WORKLOADS, values,
                          dict(zip(WORKLOADS, ("#9ecae1", "#3182bd", "#a1d99b", "#31a354"))))
    axes.set_ylabel("devices saved, %")
    axes.legend(loc="center left", bbox_to_anchor=(1, 0.5), fontsize=8)
    pictures.save(drawing, results.plot("mig_processes"))


def draw_rounds(results, rows):
    drawing, axes = pictures.figure(width=9, height=2.8)
    for workload, colour in zip(WORKLOADS, ("#9ecae1", "#3182bd", "#a1d99b", "#31a354")):
        greedy = devices_of(rows, workload, "greedy")
        rounds = [(int(row["round"]), float(row["devices"])) for row in rows
                  if row["workload"] == workload and row["round"] and row["processes"] == "1"] or [(0, greedy)]
        # The last round, which meets the bound, is not printed.
        rounds.append((rounds[-1][0] + 1, devices_of(rows, workload, "two-phase")))
        axes.plot(range(11), [rounds[min(at, len(rounds) - 1)][1] / greedy for at in range(11)], marker="o",
                  markersize=3, color=colour, label=workload)
        bound = devices_of(rows, workload, "bound-of-whole") / greedy
        axes.axhline(bound, color=colour, linewidth=0.8, linestyle=":")
    axes.set_ylim(0.97, 1.002)
    axes.set_xlabel("round")
    axes.set_ylabel("devices, of greedy's")
    axes.legend(loc="center left", bbox_to_anchor=(1, 0.5), fontsize=8)
    pictures.save(drawing, results.plot("mig_rounds"))


def draw_actions(results, rows):
    drawing, axes = pictures.figure(width=7, height=2.6)
    kinds = ("created", "removed", "migrated_within_nodes", "migrated_across_nodes", "repartitions")
    names = ["create", "delete", "migrate,\nwithin a node", "migrate,\nacross nodes", "repartition"]
    values = {row["transition"]: [int(row[kind]) for kind in kinds] for row in rows}
    pictures.grouped_bars(axes, names, list(values), values, dict(zip(values, ("#08519c", "#fdae6b"))))
    axes.set_ylabel("actions")
    axes.legend(loc="upper center", fontsize=8)
    pictures.save(drawing, results.plot("mig_actions"))


def draw_satisfaction(results, rows):
    drawing, plots = pictures.figure(1, 2, width=9, height=3, sharey=True)
    models = [*five_models.DAY, "all"]
    for axes, setting in zip(plots, ("papers", "defaults")):
        most = {workload: [100 * max(float(row["served_in_time_of_required"]) for row in rows
                                     if (row["setting"], row["workload"], row["model"]) == (setting, workload, model))
                           for model in models] for workload in ("day", "night")}
        pictures.grouped_bars(axes, [name.replace("-", "-\n") for name in models], list(most), most,
                              {"day": "#fdae6b", "night": "#08519c"})
        axes.axhline(100, color="black", linewidth=0.8, linestyle=":")
        axes.set_title(setting)
        axes.tick_params(axis="x", labelsize=7)
    plots[0].set_ylabel("served in time, % of required")
    plots[1].legend(loc="center left", bbox_to_anchor=(1, 0.5), fontsize=8)
    pictures.save(drawing, results.plot("mig_satisfaction"))


def draw_day_night(results, rows):
    drawing, plots = pictures.figure(3, 1, width=9, height=5, sharex=True)
    times = [int(row["time_s"]) for row in rows]
    plots[0].plot(times, [int(row["offered"]) for row in rows], color="#3182bd", linewidth=0.8)
    plots[0].set_ylabel("requests/s")
    for name, colour in (("devices", "#3182bd"), ("gpulets", "#31a354")):
        known = [(time, int(row[name])) for time, row in zip(times, rows) if row[name]]
        plots[1].step(*zip(*known), where="post", color=colour, label={"gpulets": "instances"}.get(name, name))
    plots[1].set_ylim(0, None)
    plots[1].legend(loc="lower right", fontsize=8)
    missed = [(time, int(row["missed"])) for time, row in zip(times, rows) if int(row["missed"])]
    plots[2].bar([time for time, _ in missed], [count for _, count in missed], width=1, color="#d95f0e")
    plots[2].set_ylabel("late or dropped")
    plots[2].set_xlabel("time, s")
    pictures.save(drawing, results.plot("mig_day_night"))


STUDIES = {"optimise": optimise, "cover": cover, "satisfaction": satisfaction, "day_night": day_night}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, default=ROOT / "build/release")
    parser.add_argument("--day-night", type=Path, default=ROOT / "build/day_night")
    parser.add_argument("--work", type=Path, default=ROOT / "build/mig_study")
    parser.add_argument("--out", type=Path, default=ROOT / "docs/experiments")
    parser.add_argument("--only", default=",".join(STUDIES))
    options = parser.parse_args()
    options.bin = options.build.resolve() / "bin"
    results = Results(options.out)
    for name in filter(None, options.only.split(",")):
        STUDIES[name](options, results)
    optimised = read_csv(options.out / "mig_optimise.csv")
    for draw in (draw_devices, draw_cost, draw_processes, draw_rounds):
        draw(results, optimised)
    draw_satisfaction(results, read_csv(options.out / "mig_satisfaction.csv"))
    draw_actions(results, read_csv(options.out / "mig_actions.csv"))
    draw_day_night(results, read_csv(options.out / "mig_day_night.csv"))


if __name__ == "__main__":
    main()
