"""What the study roma simulates: the paper's tables 1 and 2, the plant, and the files and commands of one simulation."""
import json
from dataclasses import asdict, dataclass
from pathlib import Path

from files import Folder, read_csv
from program import run_json

# ---- The paper

STEP_S, SECONDS = 35, 300
NODES, CORES = 2, 6
PERIOD_S = 1.0  # of the control; a row of a series has the same length
# Table 1.
SLO_MS = {"skylines": 380, "googlenet": 450, "resnet": 540, "vgg16": 560}
TESTS = {
    "2-Apps (Skylines, G.Net)": {"skylines": (20, 20, 80, 80, 20, 20, 20, 20),
                                 "googlenet": (20, 20, 20, 20, 70, 70, 20, 20)},
    "2-Apps (ResNet, VGG16)": {"resnet": (40, 30, 20, 40, 30, 20, 30, 30), "vgg16": (20, 30, 40, 20, 40, 40, 30, 30)},
    "AllApps": {"skylines": (10, 10, 10, 10, 30, 30, 30, 10), "googlenet": (10, 30, 30, 30, 10, 10, 10, 10),
                "resnet": (10, 20, 30, 10, 20, 30, 10, 20), "vgg16": (10, 30, 20, 10, 30, 20, 10, 20)},
}
# Section 5: beta 0.5, gamma 0, GC 0.
PUBLISHED = {"set_point": 0.8, "queued_weight": 0.5, "surplus": 0, "gpu_cores": 0}
PUBLISHED_GAINS = {"cores_per_s": 0.15, "zero": 0.11}
SYSTEMS = {
    "ROMA": {"gpu": "need", "cores": "feedback"},
    "RR+CT": {"gpu": "round-robin", "cores": "feedback"},
    "RR+rules": {"gpu": "round-robin", "cores": "steps"},
    "RR+max": {"gpu": "round-robin", "cores": "all"},
    "RR+min": {"gpu": "round-robin", "cores": "least"},
}


@dataclass(frozen=True)
class PaperRow:
    """A row of table 2: the mean, the maximum and the standard deviation of the response time, the number of
    violations and the allocated core-seconds."""
    mean_s: float
    most_s: float
    deviation_s: float
    violations: int
    core_s: int


PAPER = {
    ("2-Apps (Skylines, G.Net)", "ROMA"): PaperRow(0.168, 0.245, 0.031, 0, 748),
    ("2-Apps (Skylines, G.Net)", "RR+CT"): PaperRow(0.193, 0.358, 0.053, 0, 793),
    ("2-Apps (Skylines, G.Net)", "RR+rules"): PaperRow(0.185, 0.638, 0.075, 10, 1165),
    ("2-Apps (Skylines, G.Net)", "RR+max"): PaperRow(0.152, 0.191, 0.014, 0, 3600),
    ("2-Apps (Skylines, G.Net)", "RR+min"): PaperRow(0.278, 1.053, 0.182, 40, 600),
    ("2-Apps (ResNet, VGG16)", "ROMA"): PaperRow(0.266, 0.553, 0.068, 10, 1633),
    ("2-Apps (ResNet, VGG16)", "RR+CT"): PaperRow(0.446, 0.949, 0.117, 70, 1750),
    ("2-Apps (ResNet, VGG16)", "RR+rules"): PaperRow(0.701, 3.829, 0.528, 120, 1691),
    ("2-Apps (ResNet, VGG16)", "RR+max"): PaperRow(0.337, 0.711, 0.092, 40, 3600),
    ("2-Apps (ResNet, VGG16)", "RR+min"): PaperRow(1.537, 4.423, 0.464, 180, 600),
    ("AllApps", "ROMA"): PaperRow(0.167, 0.427, 0.022, 0, 1767),
    ("AllApps", "RR+CT"): PaperRow(0.325, 1.372, 0.130, 90, 2018),
    ("AllApps", "RR+rules"): PaperRow(0.409, 1.913, 0.158, 140, 1973),
    ("AllApps", "RR+max"): PaperRow(0.208, 0.453, 0.052, 0, 3600),
    ("AllApps", "RR+min"): PaperRow(1.032, 6.828, 0.414, 170, 600),
}
FITTED_SYSTEMS, PREDICTED_SYSTEMS = ("RR+max", "RR+min"), ("ROMA", "RR+CT", "RR+rules")

# ---- The plant

SERIAL = 0.05  # the part of a request's work that runs on one core
LEAST_CORES = 0.25  # of an instance: what RR+min gives four of them
# Gpulets and CPU instances together: a batch of n on a GPU takes (1 + n) / 2 times as long as one request.
LARGEST_BATCH = 8


@dataclass(frozen=True)
class Plant:
    """What the paper does not state. `floor_s`: the part of each response that occupies neither a GPU nor a core.
    `gpu_ms`, `core_s`: of one request, by model. `requests_at_once`: that an instance on a CPU runs together, each on an equal
    part of its cores; further ones wait in the queue of their model."""
    floor_s: float
    gpu_ms: dict
    core_s: dict
    requests_at_once: int = 1

    def document(self):
        return asdict(self)


PLANTS = Path(__file__).with_name("roma_plant.json")


def fitted_plants():
    """The plants that roma_fit.py found, the best one first."""
    return [Plant(**one) for one in json.loads(PLANTS.read_text(encoding="utf-8"))["plants"]]


# ---- Files and commands


class Scene(Folder):
    """The inputs and the commands of simulations of one plant, below one folder."""

    def __init__(self, work, gpulet, plant):
        super().__init__(Path(work))
        self.gpulet, self.plant = gpulet, plant
        self.write_profiles()
        self.write_clusters()
        for name, loads in TESTS.items():
            self.write_test(number_of(name), loads)

    def write_profiles(self):
        """The GPU as a whole, and the CPU with one to all of its cores. Below one core a quota is as slow as it is
        small, which the simulator knows."""
        tables = {name: ["model,batch,partition,latency_ms"] for name in ("worker-gpu", "worker-cpu", "spill-gpu")}
        for model in SLO_MS:
            gpu_ms, core_s = self.plant.gpu_ms[model], self.plant.core_s[model]
            tables["worker-gpu"].append(f"{model},1,100,{gpu_ms:.6g}")
            for batch in (1, 2, 4, LARGEST_BATCH):
                for share in (20, 40, 60, 80, 100):
                    tables["spill-gpu"].append(f"{model},{batch},{share},{gpu_ms * (1 + batch) / 2 * 100 / share:.6g}")
            for cores in range(1, CORES + 1):
                latency_ms = 1000 * core_s * (SERIAL + (1 - SERIAL) / cores)
                tables["worker-cpu"].append(f"{model},1,{round(100 * cores / CORES)},{latency_ms:.6g}")
        for name, lines in tables.items():
            table = self.write(f"{name}.csv", "\n".join(lines) + "\n")
            run_json([str(self.gpulet), "profile", "import", "--name", name, "--latency", str(table), "--out",
                      str(self.work / "profiles"), "--json"])

    def write_clusters(self):
        cpu = {"type": "worker-cpu", "partitioning": "simulated", "core_count": CORES}
        shared = {"type": "spill-gpu", "partitioning": "simulated", "sizes": [20, 40, 60, 80, 100], "max_partitions": 4}
        for name, devices in (("cluster", [{"type": "worker-gpu", "partitioning": "simulated"}, cpu]),
                              ("cluster-gpus", [shared]), ("cluster-spill", [shared, cpu])):
            self.write_json(f"{name}.json", {"nodes": [{"name": f"worker{node}", "devices": devices}
                                                       for node in range(NODES)]})

    def write_test(self, name, loads, factor=1, largest_batch=1):
        self.write_json(f"demand-{name}.json", {"models": [
            {"name": model, "rate": factor * rates[0], "slo_ms": SLO_MS[model], "max_batch": largest_batch}
            for model, rates in loads.items()]})
        lines = ["time_s,model,rate"]
        for step in range(len(next(iter(loads.values())))):
            lines += [f"{step * STEP_S},{model},{factor * rates[step]}" for model, rates in loads.items()]
        self.write(f"trace-{name}.csv", "\n".join(lines) + "\n")

    def command(self, cluster, name, policy, seed, *more, seconds=SECONDS):
        return [*map(str, [self.gpulet, "simulate", "--cluster", self.work / f"{cluster}.json", "--profiles",
                           self.work / "profiles", "--demand", self.work / f"demand-{name}.json", "--policy", policy,
                           "--trace", self.work / f"trace-{name}.csv", "--seconds", seconds, "--seed", seed, *more,
                           "--json"])]

    def simulate(self, test, control, seed, label, seconds=SECONDS):
        """The outcome and the series of a test. `control`: on top of the published options; its "overhead_s" is what the
        controller adds to the times that it measures. `label`: unique among the simulations of this scene."""
        options = {**PUBLISHED, "least_cores": LEAST_CORES, "seed": seed, "overhead_s": self.plant.floor_s,
                   "requests_at_once": self.plant.requests_at_once, **control}
        number = number_of(test)
        stem = f"{number}-{label}-{seed}".replace(" ", "_").replace(",", "")
        file, series = self.write_json(f"control-{stem}.json", options), self.work / f"series-{stem}.csv"
        document = run_json(self.command("cluster", number, "roma", seed, "--control", file, "--period", PERIOD_S,
                                         "--series", series, seconds=seconds))
        return Run(tuple(TESTS[test]), document, read_csv(series), self.plant.floor_s)


def number_of(test):
    return list(TESTS).index(test)


class Run:
    """The outcome of a simulation: what clients see, the floor included."""

    def __init__(self, models, document, series, floor_s):
        self.models, self.document, self.series = models, document, series
        self.floor_ms = 1000 * floor_s

    def response_ms(self, model, window_s):
        """The mean response time of each window with responses: [(requests answered about then, milliseconds)]."""
        rows = [(int(row[f"{model} offered"]), float(row[f"{model} response_ms"])) for row in self.series]
        windows = []
        for start in range(0, len(rows), window_s):
            answered = [(max(offered, 1), response) for offered, response in rows[start:start + window_s] if response > 0]
            count = sum(offered for offered, _ in answered)
            if count:
                windows.append(self.floor_ms + sum(offered * response for offered, response in answered) / count)
        return windows

    def figures(self, window_s):
        """The columns of table 2, from the means of windows of that length over all applications."""
        means = [value for model in self.models for value in self.response_ms(model, window_s)]
        mean = sum(means) / len(means)
        return {"mean_s": mean / 1000, "most_s": max(means) / 1000,
                "deviation_s": (sum((value - mean) ** 2 for value in means) / len(means)) ** 0.5 / 1000,
                "violations": self.violations(window_s)}

    def violations(self, window_s):
        """The seconds, over all applications, in windows with a mean above the objective."""
        return sum(window_s * sum(value > SLO_MS[model] for value in self.response_ms(model, window_s))
                   for model in self.models)

    def core_s(self):
        return sum(model["control"]["core_seconds"] for model in self.document["models"])

    def gpu_part(self):
        control = [model["control"] for model in self.document["models"]]
        on_gpu = sum(one["on_gpu"] for one in control)
        return on_gpu / (on_gpu + sum(one["on_cpu"] for one in control))
