"""Models without a profile on real processes and this machine's cores: how soon they answer, and how good the estimate is.

  run estimates [--models NAMES] [--measure-again] [--work DIR]

Measures the models (once: minutes). Then, for each of them, takes it out of the profile, starts a frontend and a backend
with one core that serve another model, registers the model, and prints the seconds until its first answer, and what the plan then expects of a batch
beside what was measured. Aim: an answer within 15 s. `bench_estimates --profile DIR/profiles/cpu-core` compares every cell.
Standard library only.
"""
import argparse
import csv
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench/support"))
from daemons import Site, read, write  # noqa: E402

PROFILE = "cpu-core"
FIRST_ANSWER_S = 15
SWEEP = ["--batches", "1,2,4,8", "--sizes", "20,40,60,80,100", "--seconds-per-cell", "0.5", "--longest-batch-ms", "2500"]
BYTES = {"FP64": 8, "INT64": 8, "FP32": 4, "INT32": 4, "FP16": 2, "BF16": 2, "INT16": 2, "UINT8": 1, "INT8": 1, "BOOL": 1}


def core():
    return min(os.sched_getaffinity(0))


def entries(options, every=False):
    known = {model["name"]: {**model, "rate": 1, "file": str((ROOT / "config" / model["file"]).resolve())}
             for model in read(ROOT / "config/models.json")["models"]}
    names = options.models.split(",") if options.models and not every else known
    return [known[name] for name in names if Path(known[name]["file"]).exists()]


def measure(options, models):
    folder = options.work / "profiles"
    if options.measure_again or not (folder / PROFILE / "latency.csv").exists():
        names = ",".join(model["name"] for model in models)
        print(f"measuring {names} on core {core()}", flush=True)
        with open(options.work / "profile.log", "w", encoding="utf-8") as log:
            subprocess.run([options.programs / "gpulet", "profile", "run", "--device", f"cpu:{core()}", "--models",
                            ROOT / "config/models.json", "--only", names, "--name", PROFILE, *SWEEP, "--out", folder],
                           check=True, stdout=log, stderr=log)
    return folder / PROFILE


def without(measured, name, folder):
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(measured, folder / PROFILE)
    document = read(measured / "profile.json")
    document.get("models", {}).pop(name, None)
    write(folder / PROFILE / "profile.json", document)
    with open(measured / "latency.csv", encoding="utf-8", newline="") as table:
        rows = list(csv.DictReader(table))
    with open(folder / PROFILE / "latency.csv", "w", encoding="utf-8", newline="") as table:
        writer = csv.DictWriter(table, rows[0].keys(), lineterminator="\n")
        writer.writeheader()
        writer.writerows(row for row in rows if row["model"] != name)
    return [row for row in rows if row["model"] == name]


def latency(rows, batch, size):
    """Linear between the measured batches and in 1/size between the measured sizes, as profiles/FORMAT.md says."""
    def between(points, at):
        points = sorted(points)
        low = max([p for p in points if p[0] <= at], default=points[0])
        high = min([p for p in points if p[0] >= at], default=points[-1])
        part = 0 if high[0] == low[0] else (at - low[0]) / (high[0] - low[0])
        return low[1] + part * (high[1] - low[1])
    sizes = {row["partition"] for row in rows}
    curves = [(1 / float(one), between([(float(row["batch"]), float(row["latency_ms"])) for row in rows
                                        if row["partition"] == one], batch)) for one in sizes]
    return between(curves, 1 / size)


def zeros(options, model):
    count = 0
    for tensor in model["inputs"]:
        size = BYTES[tensor["type"]]
        for dimension in tensor["shape"]:
            size *= dimension
        count += size
    (options.work / "input.raw").write_bytes(bytes(count))
    return options.work / "input.raw"


def first_answer(site, options, model):
    """Seconds from the registration to the first answer; None: there was none."""
    write(options.work / "new.json", {"models": [model]})
    began = time.monotonic()
    loaded = site.gpulet("models", "load", "--file", options.work / "new.json", "--timeout", 60)
    answer = site.gpulet("infer", "--model", model["name"], "--input", zeros(options, model))
    if loaded.returncode != 0 or answer.returncode != 0:
        print(f"{model['name']}: {loaded.stderr}{answer.stderr}", file=sys.stderr)
        return None
    return time.monotonic() - began


def planned(status, name):
    for node in status["nodes"]:
        for device in node["devices"]:
            for gpulet in device["gpulets"]:
                for model in gpulet["models"]:
                    if model["name"] == name and model["batch"] > 0:
                        return gpulet["size"], model
    return None, None


def run(options, models):
    measured = measure(options, models)
    missed = 0
    print(f"{'model':18} {'answer s':>8} {'nearest':18} {'size %':>6} {'batch':>5} {'planned ms':>10} {'measured ms':>11}")
    for model in models:
        rows = without(measured, model["name"], options.work / "left_out")
        beside = next(one for one in entries(options, every=True) if one["name"] != model["name"])
        write(options.work / "models.json", {"models": [beside]})
        backend = {"node": "n0", "devices": [{"type": PROFILE, "count": 1, "partitioning": "cpu_quota", "cores": [core()],
                                              "sizes": [20, 40, 60, 80, 100], "max_partitions": 4, "memory_mb": 6000}]}
        frontend = {"models": "models.json", "profiles": "left_out", "model_root": str(ROOT / "models")}
        site = Site(options.programs, options.work, frontend, [backend])
        try:
            site.wait_until_serving()
            seconds = first_answer(site, options, model)
            time.sleep(5)  # the plan with the estimate
            status = site.status()
        finally:
            site.stop()
        estimates = [one for one in status["estimates"] if one["model"] == model["name"]]
        size, place = planned(status, model["name"])
        if seconds is None or not estimates or place is None:
            print(f"MISSED {model['name']}: no answer, no estimate or no gpulet")
            missed += 1
            continue
        real = latency(rows, place["batch"], size)
        print(f"{model['name']:18} {seconds:8.1f} {estimates[0]['nearest']:18} {size:6} {place['batch']:5} "
              f"{place['latency_ms']:10.1f} {real:11.1f}", flush=True)
        missed += seconds > FIRST_ANSWER_S
    print(f"{'MISSED' if missed else 'ok    '} every model without a profile answers within {FIRST_ANSWER_S} s")
    return 1 if missed else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=Path, required=True, help=argparse.SUPPRESS)
    parser.add_argument("--models", default="", help="of config/models.json, separated by commas; all that are there")
    parser.add_argument("--measure-again", action="store_true")
    parser.add_argument("--work", type=Path, default=ROOT / "build/estimates")
    options = parser.parse_args()
    options.work = options.work.resolve()
    options.work.mkdir(parents=True, exist_ok=True)
    return run(options, entries(options))


if __name__ == "__main__":
    sys.exit(main())
