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
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
APPLICATIONS = ("game", "traffic")
SETTLE_SECONDS = 10
MOST_VIOLATIONS = 0.01
READY_SECONDS = 120
PROFILE = "cpu-core"
SWEEP = ["--batches", "1,2,4", "--sizes", "20,40,60,80,100", "--seconds-per-cell", "0.7", "--longest-batch-ms", "2500"]


def read(file):
    return json.loads(file.read_text(encoding="utf-8"))


def write(file, document):
    file.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


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
    write(options.work / "frontend.json", {
        "listen": "127.0.0.1:0", "backend_listen": "127.0.0.1:0", "http": "off", "grpc": "off", "metrics": "off", "models": "models.json", "profiles": str(profiles)})
    for index, core in enumerate(cores()):
        write(options.work / f"backend-n{index}.json", {
            "node": f"n{index}", "frontend": "127.0.0.1:1", "model_store": f"store-n{index}",
            "devices": [{"type": PROFILE, "count": 1, "partitioning": "cpu_quota", "sizes": [20, 40, 60, 80, 100],
                         "max_partitions": 4, "memory_mb": 6000, "cores": [core]}]})


def workload_of(name):
    return ROOT / "config/workloads" / f"{name}.json"


class Site:
    """Daemons on ports that are free, ended with it."""

    def __init__(self, options):
        self.options = options
        self.daemons = []
        ports = [self.free_port(), self.free_port()]
        self.target = f"127.0.0.1:{ports[0]}"
        frontend = read(options.work / "frontend.json")
        frontend.update({"listen": self.target, "backend_listen": f"127.0.0.1:{ports[1]}"})
        write(options.work / "frontend.json", frontend)
        self.start("frontend", "gpulet-frontend")
        for node in ("n0", "n1"):
            backend = read(options.work / f"backend-{node}.json")
            write(options.work / f"backend-{node}.json", {**backend, "frontend": f"127.0.0.1:{ports[1]}"})
            self.start(f"backend-{node}", "gpulet-backend")

    @staticmethod
    def free_port():
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            return probe.getsockname()[1]

    def start(self, config, program):
        log = open(self.options.work / f"{config}.log", "w", encoding="utf-8")
        self.daemons.append(subprocess.Popen(
            [self.options.programs / program, "--config", self.options.work / f"{config}.json"],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True))

    def gpulet(self, *arguments):
        return subprocess.run([self.options.programs / "gpulet", *map(str, arguments), "--target", self.target],
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              check=False)

    def status(self):
        answer = self.gpulet("status", "--json")
        return json.loads(answer.stdout) if answer.returncode == 0 else None

    def wait_until_serving(self):
        deadline = time.monotonic() + READY_SECONDS
        while time.monotonic() < deadline:
            status = self.status()
            if status and status["frontend"]["state"] == "serving" and not status["frontend"]["reorganising"]:
                return
            time.sleep(0.3)
        raise SystemExit(f"not serving after {READY_SECONDS} s; the logs are in {self.options.work}")

    def load(self, name, seconds):
        answer = self.gpulet("load", "--workload", workload_of(name), "--seconds", seconds, "--rate-scale",
                             self.options.rate_scale, "--json")
        if answer.returncode == 2 or not answer.stdout:
            raise SystemExit(f"gpulet load failed: {answer.stderr}")
        return json.loads(answer.stdout)["models"][0]

    def stop(self):
        for daemon in self.daemons:
            daemon.send_signal(signal.SIGTERM)
            try:
                daemon.wait(20)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()


def run(site, options):
    missed = 0
    print(f"{'application':12} {'offered':>8} {'served':>7} {'late':>5} {'dropped':>7} {'errors':>6} {'p50 ms':>8} "
          f"{'p99 ms':>8} {'SLO ms':>7} {'violation':>9}  schedulable")
    for name in APPLICATIONS:
        site.load(name, SETTLE_SECONDS)
        before = site.status()["reorganisations"]["unschedulable"]
        row = site.load(name, options.seconds)
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
    configure(options, document, names, measure(options, names))
    site = Site(options)
    try:
        site.wait_until_serving()
        return run(site, options)
    finally:
        site.stop()


if __name__ == "__main__":
    sys.exit(main())
