"""What CPUs add to gpulets on GPUs: requests that spill to them, and CPUs in plans. Not a study of the paper."""
import re
import subprocess
from pathlib import Path
from statistics import fmean

from program import ENVIRONMENT, ProgramFailed, run_json
from roma_setup import LARGEST_BATCH, LEAST_CORES, TESTS, Plant, Scene

NAME = "roma_spill"
SEEDS = (1,)  # three take twice as long
LOADS = (1, 1.25, 1.5, 2)
# Assumed, not fitted: bench/simulate/mixed_cluster.cc has the same.
ASSUMED = Plant(0, {"skylines": 24, "googlenet": 20, "resnet": 35, "vgg16": 45},
                {"skylines": 0.10, "googlenet": 0.12, "resnet": 0.25, "vgg16": 0.50})
# A row of bench_mixed_cluster: load, system, violations in percent, core-seconds held and busy.
ROW = re.compile(r"^\s*([\d.]+) (gpus|spill|planned)\s+([\d.]+) %\s+(-?\d+)\s+(-?\d+)")
CLUSTERS = {"roma": (1, 1.25, 1.5, 2), "mixed": (0.75, 1, 1.25, 1.5, 2)}


def spill(scene, load, spills, seed, seconds):
    """Violations of elastic's plans with the CPUs' help or without it."""
    control = scene.write_json(f"control-spill-{seed}.json", {"spill": True, "least_cores": LEAST_CORES, "seed": seed})
    document = run_json(scene.command(f"cluster-{'spill' if spills else 'gpus'}", f"spill-{load}", "elastic", seed,
                                      *(["--control", control] if spills else []), seconds=seconds))
    answered = sum(model["served"] for model in document["models"])
    on_cpu = sum(model["control"]["on_cpu"] for model in document["models"] if "control" in model)
    core_s = sum(model["control"]["core_seconds"] for model in document["models"] if "control" in model)
    return [load, int(spills), seed, document["violation"], on_cpu / answered, core_s]


def study_spill(scene, runner, results, seeds, seconds):
    for load in LOADS:
        scene.write_test(f"spill-{load}", TESTS["AllApps"], load, LARGEST_BATCH)
    wanted = [(load, spills, seed) for load in LOADS for spills in (False, True) for seed in seeds]
    rows = runner.map(f"{NAME}, reactive", lambda one: spill(scene, *one, seconds), wanted)
    results.csv("roma_spill.csv", [f"scripts/experiments --only {NAME}", "gpulet simulate --policy elastic --trace "
                                   "(LOAD times AllApps) [--control SPILL.json]"],
                ["load", "spill", "seed", "violation", "on_cpu", "core_seconds"], rows)
    lines = []
    for load in LOADS:
        alone, helped = ([row for row in rows if row[:2] == [load, spills]] for spills in (0, 1))
        lines.append([f"{load:g}", f"{100 * fmean(row[3] for row in alone):.2f} %",
                      f"{100 * fmean(row[3] for row in helped):.2f} %", f"{100 * fmean(row[4] for row in helped):.1f} %",
                      f"{fmean(row[5] for row in helped):.0f}"])
    results.table("roma-spill", ["load", "violations, GPUs alone", "with CPUs to spill to", "answered by CPUs",
                                 "core-seconds"], lines)


def read_mixed(text):
    """{(load, system): (violations in percent, held, busy)}"""
    matches = [ROW.match(line) for line in text.splitlines()]
    return {(float(one[1]), one[2]): (float(one[3]), int(one[4]), int(one[5])) for one in matches if one}


def run_mixed(program, cluster, load, seconds):
    policy = ["--spill-policy", "elastic"] if cluster == "roma" else []
    command = [str(program), "--cluster", cluster, "--system", "spill", "--system", "planned", "--load", str(load), *policy,
               "--seconds", str(seconds), "--seeds", "1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=ENVIRONMENT)
    if done.returncode != 0:
        raise ProgramFailed(f"{program.name} ended with {done.returncode}: {done.stderr.strip()}")
    return done.stdout


def study_mixed(measured, runner, results, seconds):
    program = Path(measured.gpulet).parent / "bench_mixed_cluster"
    if not program.is_file():
        print(f"    {NAME}: without CPUs in plans; {program} is not built (scripts/test builds it)", flush=True)
        return
    wanted = [(cluster, load) for cluster, loads in CLUSTERS.items() for load in loads]
    texts = dict(zip(wanted, runner.map(f"{NAME}, CPUs in plans", lambda one: run_mixed(program, *one, seconds), wanted,
                                        weight=lambda one: one[1] * (3 if one[0] == "mixed" else 1))))
    rows = []
    for cluster, loads in CLUSTERS.items():
        lines = []
        for load in loads:
            found = read_mixed(texts[cluster, load])
            (late, held, busy), (planned_late, planned_held, planned_busy) = found[load, "spill"], found[load, "planned"]
            rows += [[cluster, load, system, *found[load, system]] for system in ("spill", "planned")]
            lines.append([f"{load:g}", f"{late:.2f} %", held, busy, f"{planned_late:.2f} %", planned_held, planned_busy])
        results.table(f"roma-planned-{cluster}", ["load", "reactive: violations", "held", "busy", "planned: violations",
                                                  "held", "busy"], lines)
        beyond = [(found[load, "planned"], found[load, "spill"]) for load in loads if load > 1
                  for found in [read_mixed(texts[cluster, load])]]
        for name, at in (("violations", 0), ("held", 1)):
            parts = [planned[at] / reactive[at] for planned, reactive in beyond if reactive[at]]
            if parts:
                results.value(f"roma-planned-{cluster}-{name}", f"{min(parts):.2f} to {max(parts):.2f}")
    results.csv("roma_planned.csv", [f"scripts/experiments --only {NAME}", "bench_mixed_cluster --cluster CLUSTER --system "
                                     "spill --system planned --load LOAD [--spill-policy elastic] --seeds 1"],
                ["cluster", "load", "system", "violations_percent", "held_core_seconds", "busy_core_seconds"], rows)
    found = re.search(r"a load of 1 is ([\d.]+) times", texts["mixed", 1])
    results.value("roma-planned-load", found[1])


def run(measured, runner, results, quick):
    scene = Scene(measured.work / NAME, measured.gpulet, ASSUMED)
    study_spill(scene, runner, results, SEEDS, 40 if quick else 300)
    study_mixed(measured, runner, results, 40 if quick else 300)
