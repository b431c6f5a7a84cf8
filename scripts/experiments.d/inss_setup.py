"""What the parts of the study `inss` share: devices, models, objectives, rates and inputs of commands."""
import json
import math
import random
from dataclasses import dataclass
from pathlib import Path

from files import Folder, read_csv
from program import run_json

# Two RTX 2060 Super and two RTX 2060 (section 6.1): 34 and 30 multiprocessors, 8 and 6 GB.
FAST, SLOW, SLOWER_BY = "card-34", "card-30", 34 / 30
MEMORY_MB = {FAST: 8000, SLOW: 6000}
SIZES = list(range(5, 101, 5))
MOST_PARTITIONS = 8
SIX = ("densenet121", "inception", "mobilenet", "resnet50", "resnet101", "vgg19")
EIGHT = (*SIX, "densenet169", "vgg16")
# Weights of the published models in MB of 32-bit floats, and 500 MB of a process's context.
WEIGHTS_MB = {"densenet121": 32, "densenet169": 57, "inception": 104, "mobilenet": 14, "resnet50": 98,
              "resnet101": 170, "vgg16": 528, "vgg19": 548}
CONTEXT_MB = 500
LARGEST_BATCH = 32
# The papers plan with measured latencies and mean rates.
PUBLISHED = ("--margin", "1", "--headroom", "none")
# Each model's rate is a wave between this fraction of its highest rate and the whole.
TROUGH = 0.05
SECONDS, STEP_S = 300, 10
# The rates of the environment that InSS's authors published with their code: bounds, and a step every ten seconds. Our models
# take the place of theirs. Their objectives (25 to 150 ms) belong to their GPUs and are not used.
AUTHORS_RATES = {"mobilenet": (100, 500),    # AlexNet
                 "resnet50": (100, 400),     # ResNet50
                 "vgg19": (50, 200),         # VGG16
                 "densenet121": (100, 400),  # MnasNet
                 "inception": (100, 450),    # MobileNet
                 "resnet101": (100, 400)}    # EfficientNet
AUTHORS_STEP = 20
# The fraction of all highest rates that `elastic` just places on the four devices: the peak of the waves' sum is about
# three quarters of the sum of the peaks.
PEAK_OF_SUM = 0.75
COLOURS = {"inss": "#d95f0e", "inss-ni": "#fdae6b", "inss_4": "#d95f0e", "inss_5": "#a63603", "gpulet": "#08519c",
           "elastic": "#3182bd", "elastic-batch-search": "#9ecae1", "guided-self-tuning": "#e3c79b",
           "igniter": "#756bb1"}


@dataclass(frozen=True)
class Case:
    """Models on a cluster, for which a policy is trained."""
    name: str
    models: tuple
    devices: int


class Setup:
    """Input files below one folder, and the commands that read them."""

    def __init__(self, measured, runner, results, quick):
        self.gpulet, self.data = measured.gpulet, measured.folder
        self.files = Folder(Path(measured.work) / "inss")
        self.runner, self.results, self.quick, self.long = runner, results, quick, measured.long
        self.seconds = 30 if quick else SECONDS
        self.latency = {}
        for row in read_csv(self.data / "latency.csv"):
            self.latency.setdefault(row["model"], {})[int(row["batch"]), int(row["partition"])] = \
                float(row["latency_ms"])
        self.profiles = self._profiles()
        self.clusters = {(devices, partitions): self._cluster(devices, partitions)
                         for devices in (4, 5, 6) for partitions in (2, MOST_PARTITIONS)}
        self.highest = {models: self._highest_rates(models) for models in (SIX, EIGHT)}

    def path(self, name):
        return self.files.work / name

    def _scaled(self, table, factor):
        rows = read_csv(self.data / f"{table}.csv")
        for row in rows:
            if "latency_ms" in row:
                row["latency_ms"] = f"{float(row['latency_ms']) * factor:.6g}"
        text = [",".join(rows[0])] + [",".join(row.values()) for row in rows]
        return self.files.write(f"tables/{table}-{factor:.4g}.csv", "\n".join(text) + "\n")

    def _profiles(self):
        folder = self.path("profiles")
        for kind, factor in ((FAST, 1), (SLOW, SLOWER_BY)):
            run_json([str(self.gpulet), "profile", "import", "--name", kind, "--latency",
                      str(self._scaled("latency", factor)), "--utilization", str(self._scaled("utilization", factor)),
                      "--interference", str(self._scaled("interference", factor)), "--out", str(folder), "--json"])
            file = folder / kind / "profile.json"
            profile = json.loads(file.read_text(encoding="utf-8"))
            profile["models"] = {model: {"memory_mb": CONTEXT_MB + size} for model, size in WEIGHTS_MB.items()}
            self.files.write_json(file.relative_to(self.files.work), profile)
        return folder

    def _cluster(self, devices, partitions):
        """Alternating fast and slow devices."""
        nodes = [{"name": f"n{number}", "devices": [
            {"type": kind, "count": 1, "partitioning": "simulated", "sizes": SIZES, "max_partitions": partitions,
             "memory_mb": MEMORY_MB[kind]}]}
            for number in range(devices) for kind in ((FAST, SLOW)[number % 2],)]
        return self.files.write_json(f"cluster-{devices}-{partitions}.json", {"nodes": nodes})

    def slo_ms(self, model):
        """As in both gpulet papers: twice the latency of a batch of 32 on a whole device."""
        return round(2 * self.latency[model][LARGEST_BATCH, 100], 3)

    def demand(self, name, rates):
        return self.files.write_json(f"demand-{name}.json", {"models": [
            {"name": model, "rate": rate, "slo_ms": self.slo_ms(model), "max_batch": LARGEST_BATCH}
            for model, rate in rates.items()]})

    def planning(self, demand, devices, partitions=MOST_PARTITIONS):
        return ["--cluster", str(self.clusters[devices, partitions]), "--profiles", str(self.profiles), "--demand",
                str(demand)]

    def _highest_rates(self, models):
        """The highest rates of which `elastic` places PEAK_OF_SUM on four devices.

        Each model has the same fraction of a whole device's time.
        """
        shares = {model: LARGEST_BATCH / self.latency[model][LARGEST_BATCH, 100] for model in models}
        low, high = 1.0, 2000.0
        for _ in range(6 if self.quick else 12):
            scale = math.sqrt(low * high)
            demand = self.demand(f"search-{len(models)}",
                                 {model: PEAK_OF_SUM * scale * share for model, share in shares.items()})
            plan = run_json([str(self.gpulet), "schedule", *self.planning(demand, 4), "--policy", "elastic", "--json"],
                            may_be_unschedulable=True)
            low, high = (scale, high) if plan["schedulable"] else (low, scale)
        return {model: round(low * share, 3) for model, share in shares.items()}

    def trace(self, models, load):
        """Waves with periods from three to ten minutes and spread phases, so that peaks rarely coincide."""
        lines = ["time_s,model,rate"]
        for time_s in range(0, self.seconds, STEP_S):
            for index, model in enumerate(models):
                period_s = 180 + 420 * index / (len(models) - 1)
                wave = 0.5 + 0.5 * math.sin(2 * math.pi * (time_s / period_s + index * 0.618))
                lines.append(f"{time_s},{model},{load * (TROUGH + (1 - TROUGH) * wave) * self.highest[models][model]:.3f}")
        return self.files.write(f"trace-{len(models)}-{load:g}.csv", "\n".join(lines) + "\n")

    def authors_trace(self, seed):
        """Each model's rate goes up or down by AUTHORS_STEP every ten seconds, within its bounds."""
        source = random.Random(seed)
        rate = {model: source.uniform(low, high) for model, (low, high) in AUTHORS_RATES.items()}
        lines = ["time_s,model,rate"]
        for time_s in range(0, self.seconds, STEP_S):
            for model, (low, high) in AUTHORS_RATES.items():
                lines.append(f"{time_s},{model},{rate[model]:.3f}")
                rate[model] = min(high, max(low, rate[model] + source.choice((-AUTHORS_STEP, AUTHORS_STEP))))
        return self.files.write(f"trace-authors-{seed}.csv", "\n".join(lines) + "\n")
