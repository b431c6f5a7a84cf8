#!/usr/bin/env python3
"""Writes the configuration of scripts/quickstart from the measurements of this machine.

Into --out go models.json, frontend.json, backend-n0.json, backend-n1.json, workload.json, and cluster.json and
demand.json for `gpulet schedule`. Objectives and rates follow the profile, so that the same demonstration suits a
slow machine and a fast one:

  SLO    SLO_FACTOR times the latency of one request on a whole device, and at least LEAST_SLO_MS
  rate   every model gets the same part of LOAD of all devices' time, and at most HIGHEST_RATE;
         then all rates are lowered together until the scheduler (--gpulet) can serve them.
         The workload sends SENT of what was planned: daemons and load generator use the same cores

Where other work takes a part of the cores, rates are lower and objectives longer by that part.

Standard library only. Exits 0, or 1 with a message if no demand of these models can be served.
"""
import argparse
import csv
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

NODES = ("n0", "n1")
LOAD = 0.5          # fraction of the devices' time without batching
SLO_FACTOR = 12     # a request takes five times as long at 20 % of a core, and waits for the round before
LEAST_SLO_MS = 60   # several periods of the CPU quota
HIGHEST_RATE = 200  # per second and model
SENT = 0.7          # part of the planned rates that the workload sends
BUSY_BELOW = 0.9    # part of a core that a process gets on an idle machine at least
LEAST_SHARE = 0.1   # of a core, below which nothing is adapted further
SHRINK = 0.9        # factor of all rates per attempt
ATTEMPTS = 20
DIGITS_MODEL = "lenet"


def read_latencies(profile):
    """{model: {size: {batch: ms}}} of profiles/<name>/latency.csv."""
    latencies = {}
    with open(profile / "latency.csv", encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            sizes = latencies.setdefault(row["model"], {})
            sizes.setdefault(int(row["partition"]), {})[int(row["batch"])] = float(row["latency_ms"])
    return latencies


def two_digits(value):
    """Rounds to two significant digits."""
    return float(f"{value:.2g}")


def share_of_core(core, seconds=0.5):
    """The part of a core that a process gets while others use it, too."""
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        began, used = time.monotonic(), time.process_time()
        while time.monotonic() - began < seconds:
            pass
        return max(LEAST_SHARE, min(1.0, (time.process_time() - used) / (time.monotonic() - began)))
    finally:
        os.sched_setaffinity(0, allowed)


def demand_of(latencies, names, devices, share=1.0):
    """[{name, rate, slo_ms, max_batch}]: half of the devices' capacity, divided equally. `share`: of a core that is free."""
    part = LOAD * devices * share / len(names)
    demand = []
    for name in names:
        whole = latencies[name][max(latencies[name])]
        one_ms = whole[min(whole)] / min(whole)
        demand.append({
            "name": name,
            "rate": two_digits(min(HIGHEST_RATE * share, part * 1000 / one_ms)),
            "slo_ms": two_digits(max(LEAST_SLO_MS, SLO_FACTOR * one_ms) / share),
            "max_batch": min(max(batches) for batches in latencies[name].values()),
        })
    return demand


def memory_mb():
    """Disk space for models on each node: half of the free space, divided equally."""
    with open("/proc/meminfo", encoding="ascii") as file:
        free = next(int(line.split()[1]) for line in file if line.startswith("MemAvailable:"))
    return round(free / 1024 / 2 / len(NODES))


def device_of(type_name, sizes, core):
    return {"type": type_name, "count": 1, "partitioning": "cpu_quota", "sizes": sizes, "max_partitions": 4,
            "memory_mb": memory_mb(), "cores": [core]}


def cores_of_nodes():
    """One core per node; with one core, both nodes share it."""
    cores = sorted(os.sched_getaffinity(0))
    return [cores[index % len(cores)] for index in range(len(NODES))]


def free_port(host, wanted):
    """`wanted` if free, else any free port."""
    for port in (wanted, 0):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((host, port))
            except OSError:
                continue
            return probe.getsockname()[1]
    raise SystemExit(f"no TCP port of {host} can be listened on")


def serve_within_means(demand, planned):
    """Lowers all rates until planned(demand) is true; None if no rates are served."""
    for attempt in range(ATTEMPTS):
        scaled = [{**model, "rate": two_digits(model["rate"] * SHRINK**attempt)} for model in demand]
        if planned(scaled):
            return scaled
    return None


def write(folder, name, document):
    (folder / name).write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def planner(gpulet, out, profiles, policy):
    """A function that runs `gpulet schedule` on a demand; leaves the last demand in demand.json."""

    def planned(demand):
        write(out, "demand.json", {"models": demand})
        answer = subprocess.run(
            [gpulet, "schedule", "--json", "--cluster", out / "cluster.json", "--profiles", profiles,
             "--demand", out / "demand.json", "--policy", policy],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, check=False)
        if answer.returncode == 2 or not answer.stdout:
            raise SystemExit(f"gpulet schedule failed with {answer.returncode}; its message is above")
        return json.loads(answer.stdout)["schedulable"]

    return planned


def write_daemons(options, demand, devices, ports):
    out, objectives = options.out, {model["name"]: model for model in demand}
    folder = options.models.resolve().parent
    models = []
    for model in json.loads(options.models.read_text(encoding="utf-8"))["models"]:
        if model["name"] in objectives:
            file = (folder / model["file"]).resolve()
            models.append({**model, **objectives[model["name"]], "file": os.path.relpath(file, out)})
    write(out, "models.json", {"models": models})
    write(out, "frontend.json", {
        "listen": f"{options.listen}:{ports[0]}", "backend_listen": f"127.0.0.1:{ports[1]}",
        "http": f"{options.listen}:{ports[2]}", "grpc": f"{options.listen}:{ports[3]}",
        "metrics": f"{options.listen}:{ports[4]}", "models": "models.json", "drain_grace_s": 0,
        "profiles": os.path.relpath(options.profiles.resolve(), out), "policy": options.policy, "idle_after_s": 0})
    for node, device in zip(NODES, devices):
        write(out, f"backend-{node}.json", {
            "node": node, "frontend": f"127.0.0.1:{ports[1]}", "model_store": f"store-{node}", "devices": [device]})


def write_workload(options, demand):
    models = []
    for model in demand:
        entry = {"name": model["name"], "rate": two_digits(SENT * model["rate"]), "slo_ms": model["slo_ms"], "arrivals": "poisson"}
        if model["name"] == DIGITS_MODEL:
            entry["input"] = {kind: os.path.relpath(options.digits.resolve() / f"digits.{suffix}", options.out)
                              for kind, suffix in (("file", "f32"), ("labels", "labels"))}
        models.append(entry)
    write(options.out, "workload.json", {"models": models})


def make(options):
    options.out = options.out.resolve()
    options.out.mkdir(parents=True, exist_ok=True)
    profile = options.profiles.resolve() / options.profile
    latencies = read_latencies(profile)
    names = sorted(latencies)
    sizes = sorted(set.intersection(*(set(latencies[name]) for name in names)))
    devices = [device_of(options.profile, sizes, core) for core in cores_of_nodes()]
    write(options.out, "cluster.json", {"nodes": [
        {"name": node, "devices": [{key: value for key, value in device.items() if key != "cores"}]}
        for node, device in zip(NODES, devices)]})
    share = min(share_of_core(core) for core in set(cores_of_nodes()))
    demand = serve_within_means(
        demand_of(latencies, names, len(set(cores_of_nodes())), share),
        planner(options.gpulet, options.out, options.profiles.resolve(), options.policy))
    if demand is None:
        print(f"{profile}: no rate of these models can be served on this machine within {SLO_FACTOR} times their "
              "latency; was it busy while it was measured? Remove that folder and start again", file=sys.stderr)
        return 1
    listen = free_port(options.listen, 7000)
    ports = (listen, free_port("127.0.0.1", listen + 1), *(free_port(options.listen, port) for port in (8000, 8001, 8002)))
    write_daemons(options, demand, devices, ports)
    write_workload(options, demand)
    if share < BUSY_BELOW:
        print(f"other work uses this machine: a process gets {share:.0%} of a core. Rates are lower and objectives longer by that part")
    for model in demand:
        print(f"{model['name']:17} {two_digits(SENT * model['rate']):6g} of {model['rate']:g} planned requests/s within {model['slo_ms']:g} ms")
    return 0


class SelfTest(unittest.TestCase):
    LATENCIES = {"a": {20: {1: 5.0, 4: 20.0}, 100: {1: 1.0, 4: 3.0}}, "b": {20: {1: 100.0}, 100: {1: 20.0, 2: 30.0}}}

    def test_every_model_gets_its_part_of_half_the_devices(self):
        demand = demand_of(self.LATENCIES, ["a", "b"], devices=2)
        self.assertEqual([model["rate"] for model in demand], [200, 25])  # a is bounded
        self.assertEqual([model["slo_ms"] for model in demand], [60, 240])
        self.assertEqual([model["max_batch"] for model in demand], [4, 1])  # what every size was measured with

    def test_other_work_lowers_rates_and_lengthens_objectives(self):
        demand = demand_of(self.LATENCIES, ["a", "b"], devices=2, share=0.5)
        self.assertEqual([model["rate"] for model in demand], [100, 12])
        self.assertEqual([model["slo_ms"] for model in demand], [120, 480])
        self.assertTrue(LEAST_SHARE <= share_of_core(min(os.sched_getaffinity(0)), 0.01) <= 1)

    def test_rates_come_down_until_they_can_be_served(self):
        demand = demand_of(self.LATENCIES, ["a", "b"], devices=2)
        served = serve_within_means(demand, lambda models: sum(model["rate"] for model in models) < 190)
        self.assertEqual([model["rate"] for model in served], [160, 20])
        self.assertIsNone(serve_within_means(demand, lambda models: False))

    def test_reads_what_profiles_hold(self):
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "latency.csv").write_text("model,batch,partition,latency_ms\na,4,20,1.5\n", encoding="utf-8")
            self.assertEqual(read_latencies(Path(folder)), {"a": {20: {4: 1.5}}})


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=Path, help="the models file to take the models' files and shapes from")
    parser.add_argument("--profiles", type=Path, help="the folder of profiles")
    parser.add_argument("--profile", help="the profile of this machine; its name is the devices' type")
    parser.add_argument("--digits", type=Path, help="the folder with digits.f32 and digits.labels")
    parser.add_argument("--gpulet", type=Path, help="the gpulet program")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--policy", default="auto")
    parser.add_argument("--listen", default="127.0.0.1", help="the address for clients (default: %(default)s)")
    parser.add_argument("--self-test", action="store_true")
    options = parser.parse_args()
    if options.self_test:
        return 0 if unittest.main(argv=[sys.argv[0]], exit=False).result.wasSuccessful() else 1
    for name in ("models", "profiles", "profile", "digits", "gpulet", "out"):
        if getattr(options, name) is None:
            parser.error(f"--{name} is missing")
    return make(options)


if __name__ == "__main__":
    sys.exit(main())
