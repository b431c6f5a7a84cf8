"""The applications of config/models.json, end to end on the real models and this machine's cores.

  run applications [--seconds S] [--rate-scale X] [--measure-again] [--work DIR]

Measures the models that they are made of (once: minutes), starts a frontend and a backend for each of two cores, sends
each application's workload (config/workloads) for --seconds (60) after ten that are not counted, and prints a row for
each. Aims: the scheduler calls the load schedulable all along; violations of the whole's objective under 1 %; no errors.
Standard library only.
"""
import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench/support"))
from daemons import Site, read, write  # noqa: E402

APPLICATIONS = ("game", "traffic")
SETTLE_SECONDS = 10
MOST_VIOLATIONS = 0.01
PROFILE = "cpu-core"
SWEEP = ["--batches", "1,2,4", "--sizes", "20,40,60,80,100", "--seconds-per-cell", "0.7", "--longest-batch-ms", "2500"]


def models_of(applications):
    return sorted({node["model"] for application in applications for node in application["nodes"] if "model" in node})


def cores():
    usable = sorted(os.sched_getaffinity(0))
    return [usable[0], usable[min(1, len(usable) - 1)]]


def measure(options, names):
    profiles = options.work / "profiles"
    if options.measure_again or not (profiles / PROFILE / "latency.csv").exists():
        print(f"measuring {', '.join(names)} on core {cores()[0]}", flush=True)
        with open(options.work / "profile.log", "w", encoding="utf-8") as log:
            subprocess.run([options.programs / "gpulet", "profile", "run", "--device", f"cpu:{cores()[0]}", "--models",
                            ROOT / "config/models.json", "--only", ",".join(names), "--name", PROFILE, *SWEEP, "--out",
                            profiles], check=True, stdout=log, stderr=log)
    return profiles


def configure(options, document, names, profiles):
    models = [{**model, "rate": 0, "file": str((ROOT / "config" / model["file"]).resolve())}
              for model in document["models"] if model["name"] in names]
    applications = [{**one, "rate": read(workload_of(one["name"]))["models"][0]["rate"] * options.rate_scale}
                    for one in document["applications"]]
    write(options.work / "models.json", {"models": models, "applications": applications})
    frontend = {"models": "models.json", "profiles": str(profiles)}
    backends = [{"node": f"n{index}",
                 "devices": [{"type": PROFILE, "count": 1, "partitioning": "cpu_quota",
                              "sizes": [20, 40, 60, 80, 100], "max_partitions": 4, "memory_mb": 6000, "cores": [core]}]}
                for index, core in enumerate(cores())]
    return frontend, backends


def workload_of(name):
    return ROOT / "config/workloads" / f"{name}.json"


def load(site, options, name, seconds):
    answer = site.gpulet("load", "--workload", workload_of(name), "--seconds", seconds, "--rate-scale",
                         options.rate_scale, "--json")
    if answer.returncode == 2 or not answer.stdout:
        raise SystemExit(f"gpulet load failed: {answer.stderr}")
    return json.loads(answer.stdout)["models"][0]


def run(site, options):
    missed = 0
    print(f"{'application':12} {'offered':>8} {'served':>7} {'late':>5} {'dropped':>7} {'errors':>6} {'p50 ms':>8} "
          f"{'p99 ms':>8} {'SLO ms':>7} {'violation':>9}  schedulable")
    for name in APPLICATIONS:
        load(site, options, name, SETTLE_SECONDS)
        before = site.status()["reorganisations"]["unschedulable"]
        row = load(site, options, name, options.seconds)
        status = site.status()
        fits = status["frontend"]["schedulable"] and status["reorganisations"]["unschedulable"] == before
        print(f"{name:12} {row['offered']:8} {row['served']:7} {row['late']:5} {row['dropped']:7} {row['errors']:6} "
              f"{row['p50_ms'] or 0:8.0f} {row['p99_ms'] or 0:8.0f} {row['slo_ms']:7.0f} {row['violation']:9.2%}  "
              f"{'yes' if fits else 'no'}", flush=True)
        good = fits and row["errors"] == 0 and row["violation"] < MOST_VIOLATIONS
        print(f"{'ok    ' if good else 'MISSED'} {name}: its objective is kept at a load that is schedulable")
        missed += not good
    return 1 if missed else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=Path, required=True, help=argparse.SUPPRESS)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--rate-scale", type=float, default=1.0)
    parser.add_argument("--measure-again", action="store_true")
    parser.add_argument("--work", type=Path, default=ROOT / "build/applications")
    options = parser.parse_args()
    options.work = options.work.resolve()
    options.work.mkdir(parents=True, exist_ok=True)
    document = read(ROOT / "config/models.json")
    names = models_of(document["applications"])
    site = Site(options.programs, options.work, *configure(options, document, names, measure(options, names)))
    try:
        site.wait_until_serving()
        return run(site, options)
    finally:
        site.stop()


if __name__ == "__main__":
    sys.exit(main())
