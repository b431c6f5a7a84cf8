"""Writes the five models of MIG-serving's testbed (section 8) and their day and night as input files.

The paper tells neither latencies nor rates. Here a batch of b on an instance with s slices of compute and m of memory
takes fixed + compute * b * (1 + crowding / m) / s milliseconds, as in tests/support/mig/workloads.h, but tens of times
as long: 16 busy devices are then some 200 requests/s, which two cores carry. The rates need 16 devices by day and 5 by
night.
"""
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
from daemons import write  # noqa: E402

GEOMETRY = "a100-40"
NODES, DEVICES_EACH = 3, 8
SLO_MS = 2000
LARGEST_BATCH = 32
# Slices of compute and of memory of each instance.
INSTANCES = {"1g": (1, 1), "2g": (2, 2), "3g": (3, 4), "4g": (4, 4), "7g": (7, 8)}
# fixed ms, compute ms on one slice, crowding, the least slices that hold it; requests/s by day and by night.
MODELS = {
    "roberta-large": (40, 700, 0.30, 2, 26, 6.2),
    "bert-base-uncased": (20, 350, 0.02, 1, 57, 15.6),
    "albert-large-v2": (30, 600, 0.25, 1, 25, 7.2),
    "resnet101": (120, 300, 0.02, 1, 49, 13.2),
    "resnet50": (90, 180, 0.02, 1, 55, 15.6),
}
DAY = {name: model[4] for name, model in MODELS.items()}
NIGHT = {name: model[5] for name, model in MODELS.items()}


def latency_ms(name, batch, instance):
    fixed, compute, crowding, _, _, _ = MODELS[name]
    slices, memory = INSTANCES[instance]
    return fixed + compute * batch * (1 + crowding / memory) / slices


def devices(count):
    return [{"type": "card", "count": count, "partitioning": "simulated", "geometry": GEOMETRY}]


def write_demand(file, rates):
    write(file, {"models": [{"name": name, "rate": rate, "slo_ms": SLO_MS, "max_batch": LARGEST_BATCH}
                            for name, rate in rates.items()]})


def prepare(folder, gpulet):
    """The profile `card`, cluster.json, day.json and night.json."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = [f"{name},{batch},{instance},{latency_ms(name, batch, instance):.6g}" for name, model in MODELS.items()
            for instance, (slices, _) in INSTANCES.items() if slices >= model[3]
            for batch in (1, 2, 4, 8, 16, LARGEST_BATCH)]
    (folder / "latency.csv").write_text("model,batch,partition,latency_ms\n" + "\n".join(rows) + "\n", encoding="utf-8")
    subprocess.run([gpulet, "profile", "import", "--name", "card", "--latency", folder / "latency.csv", "--mig",
                    GEOMETRY, "--out", folder / "profiles"], check=True, stdout=subprocess.DEVNULL)
    write(folder / "cluster.json", {"nodes": [{"name": f"n{node}", "devices": devices(DEVICES_EACH)}
                                              for node in range(NODES)]})
    write_demand(folder / "day.json", DAY)
    write_demand(folder / "night.json", NIGHT)
