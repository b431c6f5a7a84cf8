"""The measurements behind the studies, and the input files of commands: profiles, clusters, demands, rates."""
import csv
import json
from dataclasses import dataclass
from pathlib import Path

import stand_ins
from program import ProgramFailed, run_json

REFERENCE = Path("profiles/reference-gpu")  # from the root of the repository
SLO_BATCH = 32        # an SLO is twice the latency of such a batch on a whole device, as in both papers
MAX_BATCH = 32
# The models of the reference case; those whose own co-runs were measured; nine for the larger studies.
REFERENCE_MODELS = ("resnet50", "vgg16", "densenet121", "inception", "mobilenet")
PAIRED_MODELS = ("resnet50", "vgg19", "densenet121")
NINE_MODELS = ("densenet121", "densenet169", "inception", "mobilenet", "resnet101", "resnet152", "resnet50", "vgg16",
               "vgg19")


@dataclass(frozen=True)
class Scene:
    """The input files of one command, relative to the repository, as on its command line."""
    cluster: str
    profiles: str
    demand: str


class Measurements:
    """One folder of CSV files, imported once into a profile below build/."""

    def __init__(self, folder, gpulet, work, kind="measured"):
        self.folder, self.gpulet, self.work = Path(folder), gpulet, Path(work)
        self.latency = self._read_latency()
        self.type = kind
        self.reference = self.folder.name == REFERENCE.name
        self.has_pairs = (self.folder / "interference.csv").is_file()
        self.scales_rates = kind == "measured" and not self.reference

    def papers_models(self):
        """The nine models of the gpulet paper (stand_ins.py), imported; None where these measurements lack one."""
        if not self.has_pairs or any(one.measured not in self.latency for one in stand_ins.MODELS.values()):
            return None
        tables = self.work / "stand_ins"
        stand_ins.write_tables(self.folder, tables)
        made = Measurements(tables, self.gpulet, self.work, "papers")
        made.import_profiles()
        return made

    def profiles_without(self, models):
        """A folder of profiles in which no pair with one of the models was measured: its interference is predicted by
        what other models taught."""
        name = f"profiles-without-{'-'.join(models)}"
        rows = [row for row in stand_ins.read_rows(self.folder / "interference.csv")
                if row["model"] not in models and row["other_model"] not in models]
        lines = [",".join(rows[0])] + [",".join(row.values()) for row in rows]
        table = self.write(f"{name}.csv", "\n".join(lines) + "\n")
        self.import_profiles(interference=table, out=name)
        return self.path(name)

    def _read_latency(self):
        latency = {}
        with open(self.folder / "latency.csv", encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file):
                key = (int(row["batch"]), int(row["partition"]))
                latency.setdefault(row["model"], {})[key] = float(row["latency_ms"])
        return latency

    @property
    def sizes(self):
        return sorted({size for cells in self.latency.values() for _, size in cells})

    def import_profiles(self, interference=None, out="profiles"):
        tables = {name: self.folder / f"{name}.csv" for name in ("latency", "utilization", "interference")}
        if interference:
            tables["interference"] = interference
        command = [str(self.gpulet), "profile", "import", "--name", self.type]
        for name, file in tables.items():
            if Path(file).is_file():
                command += [f"--{name}", str(file)]
        run_json(command + ["--out", self.path(out), "--json"])

    def largest_batch(self, model):
        return min(MAX_BATCH, max(batch for batch, size in self.latency[model] if size == 100))

    def slo_ms(self, model):
        return round(2 * self.latency[model][(self.largest_batch(model), 100)], 6)

    def choose(self, wanted):
        """The given models if they were measured, else as many others."""
        if all(model in self.latency for model in wanted):
            return tuple(wanted)
        return tuple(sorted(self.latency))[:len(wanted)]

    def unit_rate(self, model):
        """The rate that takes as much of this device's time as 1 request per second takes of the reference device's."""
        if not self.scales_rates:
            return 1.0
        whole = self.largest_batch(model) / self.latency[model][(self.largest_batch(model), 100)] * 1000
        return whole / 2000  # the reference models make about 2,000 requests per second on a whole device

    def path(self, name):
        return str(self.work / name)

    def write(self, name, text):
        path = self.work / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
        return self.path(name)

    def scene(self, name, models, devices, rates=None):
        """Files of that name. The demand's rates (default 0) apply unless scenarios or a trace give others."""
        cluster = {"nodes": [{"name": "n0", "devices": [
            {"type": self.type, "count": devices, "partitioning": "simulated", "sizes": self.sizes,
             "max_partitions": 2}]}]}
        demand = {"models": [{"name": model, "rate": (rates or {}).get(model, 0), "slo_ms": self.slo_ms(model),
                              "max_batch": self.largest_batch(model)} for model in models]}
        return Scene(self.write(f"cluster-{self.type}-{devices}.json", json.dumps(cluster, indent=1) + "\n"),
                     self.path("profiles"),
                     self.write(f"demand-{name}.json", json.dumps(demand, indent=1) + "\n"))

    def scenarios(self, name, models, rows):
        """A CSV of rate vectors in requests per second of the reference."""
        units = [self.unit_rate(model) for model in models]
        lines = [",".join(models)]
        lines += [",".join(f"{rate * unit:.10g}" for rate, unit in zip(row, units)) for row in rows]
        return self.write(f"scenarios/{name}.csv", "\n".join(lines) + "\n")


def find_data(asked):
    """The folder of measurements: the requested one, or the reference."""
    folder = Path(asked) if asked else REFERENCE
    if not (folder / "latency.csv").is_file():
        raise ProgramFailed(f"--data {folder}: there is no latency.csv; name a folder of measurements")
    return str(folder)
