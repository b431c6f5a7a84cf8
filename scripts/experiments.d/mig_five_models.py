"""Five models on 24 simulated MIG devices of three nodes, as processes: a frontend, three backends, and their load.

The devices do not compute, but each instance has a process. A batch of b on an instance with s slices of compute and m of
memory takes fixed + compute * b * (1 + crowding / m) / s milliseconds. Batches have up to four requests, so the fixed part
makes all five models sub-linear: small instances suit them, and the day has more than a hundred. The models are slow enough
for two cores. The rates need about 21 devices by day and 6 by night. The paper gives neither latencies nor rates.
"""
import json
import subprocess
import sys
import time
from pathlib import Path

from files import read_csv
from program import ProgramFailed

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench/support"))
from daemons import Site, write  # noqa: E402

GEOMETRY = "a100-40"
NODES, DEVICES_EACH = 3, 8
SLO_MS = 2500
LARGEST_BATCH = 4
# Slices of compute and of memory of each instance.
INSTANCES = {"1g": (1, 1), "2g": (2, 2), "3g": (3, 4), "4g": (4, 4), "7g": (7, 8)}
# fixed ms, compute ms on one slice, crowding, the least slices that hold it; requests/s by day and by night.
MODELS = {
    "roberta-large": (250, 330, 0.30, 2, 39, 10),
    "bert-base-uncased": (250, 170, 0.02, 1, 98, 26),
    "albert-large-v2": (250, 250, 0.25, 1, 52, 14),
    "resnet101": (300, 140, 0.02, 1, 91, 25),
    "resnet50": (300, 90, 0.02, 1, 117, 33),
}
DAY = {name: model[4] for name, model in MODELS.items()}
NIGHT = {name: model[5] for name, model in MODELS.items()}
PROGRAMS = ("gpulet", "gpulet-frontend", "gpulet-backend")


def latency_ms(name, batch, instance):
    fixed, compute, crowding, _, _, _ = MODELS[name]
    slices, memory = INSTANCES[instance]
    return fixed + compute * batch * (1 + crowding / memory) / slices


def prepare(programs, work):
    """The profile `card` and the frontend's models."""
    for program in PROGRAMS:
        if not (programs / program).is_file():
            raise ProgramFailed(f"{programs / program} is missing; build the target {program}")
    work.mkdir(parents=True, exist_ok=True)
    rows = [f"{name},{batch},{instance},{latency_ms(name, batch, instance):.6g}" for name, model in MODELS.items()
            for instance, (slices, _) in INSTANCES.items() if slices >= model[3]
            for batch in (1, 2, LARGEST_BATCH)]
    (work / "latency.csv").write_text("model,batch,partition,latency_ms\n" + "\n".join(rows) + "\n", encoding="utf-8")
    subprocess.run([programs / "gpulet", "profile", "import", "--name", "card", "--latency", work / "latency.csv",
                    "--mig", GEOMETRY, "--out", work / "profiles"], check=True, stdout=subprocess.DEVNULL)
    models = []
    for name, rate in DAY.items():
        (work / f"{name}.pt").write_text(f"stands for model {name}", encoding="utf-8")
        models.append({"name": name, "file": f"{name}.pt", "slo_ms": SLO_MS, "rate": rate, "max_batch": LARGEST_BATCH,
                       "inputs": [{"name": "x", "type": "UINT8", "shape": [784]}],
                       "outputs": [{"name": "y", "type": "UINT8", "shape": [10]}]})
    write(work / "models.json", {"models": models})


def start(programs, work):
    """The daemons; they end with stop()."""
    frontend = {"models": "models.json", "profiles": "profiles", "policy": "mig-two-phase", "period_s": 10}
    devices = [{"type": "card", "count": DEVICES_EACH, "partitioning": "simulated", "geometry": GEOMETRY}]
    backends = [{"node": f"n{number}", "profiles": "profiles", "devices": devices} for number in range(NODES)]
    return Site(programs, work, frontend, backends)


class Layer:
    """One `gpulet load` with constant rates."""

    def __init__(self, site, number, begin, end, rates):
        self.begin, self.seconds, self.number = begin, end - begin, number
        self.site, self.process, self.began = site, None, None
        self.file = site.work / f"load-{number}"
        write(self.file.with_suffix(".json"), {"models": [
            {"name": name, "rate": rate, "slo_ms": SLO_MS} for name, rate in rates.items()]})

    def start(self, now):
        self.began = now
        with open(self.file.with_suffix(".log"), "w", encoding="utf-8") as log:
            self.process = subprocess.Popen(
                [self.site.programs / "gpulet", "load", "--target", self.site.target, "--workload",
                 self.file.with_suffix(".json"), "--seconds", f"{self.seconds:.3f}", "--seed", str(self.number + 1),
                 "--csv", self.file.with_suffix(".csv"), "--connections", "1", "--json"],
                stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)

    def requests(self):
        """[(intended s, status, latency ms)], and the number of requests without a row"""
        self.process.wait()
        rows = [(self.began + float(row["intended_s"]), row["status"], float(row["latency_ms"]))
                for row in read_csv(self.file.with_suffix(".csv"))]
        said = json.loads(self.file.with_suffix(".log").read_text(encoding="utf-8"))
        return rows, sum(model["offered"] for model in said["models"]) - len(rows)


def send(site, layers, seconds, look_s, look):
    """Starts each layer in time, and calls look(status, time) meanwhile."""
    waiting = sorted(layers, key=lambda layer: layer.begin)
    zero = time.monotonic()
    ended = False
    try:
        while time.monotonic() - zero < seconds:
            while waiting and waiting[0].begin <= time.monotonic() - zero:
                waiting.pop(0).start(time.monotonic() - zero)
            status = site.status()
            if status:
                look(status, time.monotonic() - zero)
            time.sleep(look_s)
        ended = True
    finally:
        for layer in layers:
            if not ended and layer.process and layer.process.poll() is None:
                layer.process.terminate()
