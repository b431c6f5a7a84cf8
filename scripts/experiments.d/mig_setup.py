"""What the parts of the study `mig` share: readings of the objective, workloads, programs, and the measured A100."""
import csv
import random
import subprocess
from pathlib import Path

from files import Folder, read_csv
from program import ENVIRONMENT, ProgramFailed, run_json

PROFILES = "profiles"                                # from the root of the repository
MEASURED = f"{PROFILES}/reference-a100-mig"
MEASURED_TYPE = "reference-a100-mig"
STRICT = "a100-40-strict"                            # no 3g beside a 4g, as in the paper (section 2.1)
WORKLOADS = ("normal-1", "normal-2", "lognormal-1", "lognormal-2")
SLO_MS = 100.0                                       # section 8, simulation workloads
# What a batch may take: the whole objective, as in the paper, or half of it, as in gpulet's plans.
READINGS = {"paper": SLO_MS, "half": SLO_MS / 2}
READING_NAMES = {"paper": "batch up to 100 ms (the paper)", "half": "batch up to 50 ms (gpulet)"}
CAPS = (8, 16, 32)
LARGEST_BATCH = 32                                   # the largest that the paper measures (appendix B)
SLICES = {"1g": 1, "2g": 2, "3g": 3, "4g": 4, "7g": 7}
SHARES = {1: 14, 2: 28, 3: 42, 4: 57, 7: 100}        # nominal, of the compute slices
AS_PUBLISHED = ("--headroom", "none", "--margin", "1")  # plans for mean rates, as in the paper
NAMES = {"whole": "7/7", "7x1": "7x1/7", "mix": "4-2-1", "greedy": "greedy", "two-phase": "two-phase", "cover": "cover"}
COLOURS = {"7/7": "#7f7f7f", "7x1/7": "#b5b5b5", "4-2-1": "#e3c79b", "greedy": "#9ecae1", "two-phase": "#3182bd",
           "cover": "#31a354", "bound": "#000000", "authors": "#d62728",
           "normal-1": "#9ecae1", "normal-2": "#3182bd", "lognormal-1": "#a1d99b", "lognormal-2": "#31a354",
           "day": "#fdae6b", "night": "#08519c", "day2night": "#08519c", "night2day": "#fdae6b"}


class Setup:
    """The programs beside gpulet, and a folder for the inputs of commands."""

    def __init__(self, measured, runner, results, quick):
        self.gpulet = str(measured.gpulet)
        self.programs = Path(measured.gpulet).parent
        self.folder = Folder(Path(measured.work) / "mig")
        self.runner, self.results, self.quick = runner, results, quick

    def path(self, name):
        return self.folder.work / name

    def bench_csv(self, program, *options):
        """The rows that a bench program prints."""
        command = [str(self.programs / program), *map(str, options)]
        if not Path(command[0]).is_file():
            raise ProgramFailed(f"{command[0]} is missing; build the target {program}")
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=ENVIRONMENT)
        if done.returncode != 0:
            raise ProgramFailed(f"{' '.join(command)}\nended with {done.returncode}: {done.stderr.strip()}")
        return list(csv.DictReader(done.stdout.splitlines()))

    def gpulet_json(self, *arguments, may_be_unschedulable=False):
        return run_json([self.gpulet, *map(str, arguments), "--json"], may_be_unschedulable)


def demand(rates, slo_ms, largest_batch):
    """A demand file's document; slo_ms may be a number or a dictionary by model."""
    slo_of = slo_ms if isinstance(slo_ms, dict) else dict.fromkeys(rates, slo_ms)
    return {"models": [{"name": model, "rate": rate, "slo_ms": slo_of[model], "max_batch": largest_batch}
                       for model, rate in rates.items()]}


def cluster(devices, nodes=1, processes=1, strict=True, geometry="a100-80", kind=MEASURED_TYPE):
    return {"nodes": [{"name": f"n{node}", "devices": [
        {"type": kind, "count": devices, "partitioning": "simulated", "geometry": geometry,
         "allow_3g_beside_4g": not strict, "processes_per_instance": processes}]} for node in range(nodes)]}


class MeasuredModels:
    """The measurements in profiles/reference-a100-mig."""

    def __init__(self):
        self.latency = {}  # (model, slices, processes) -> [(batch, ms)]
        slices_of = {share: slices for slices, share in SHARES.items()}
        for row in read_csv(f"{MEASURED}/latency.csv"):
            key = (row["model"], slices_of[int(row["partition"])], int(row["processes"]))
            self.latency.setdefault(key, []).append((int(row["batch"]), float(row["latency_ms"])))
        self.models = sorted({model for model, _, _ in self.latency})
        self.scenarios = {}  # scenario -> {model: (rate, slo_ms)}
        for row in read_csv(f"{MEASURED}/demands.csv"):
            self.scenarios.setdefault(int(row["scenario"]), {})[row["model"]] = (float(row["rate"]),
                                                                                float(row["slo_ms"]))

    def latency_ms(self, model, slices, batch):
        """Of one process; None where it was not measured."""
        return dict(self.latency.get((model, slices, 1), [])).get(batch)

    def throughput(self, model, slices, batch):
        latency = self.latency_ms(model, slices, batch)
        return 1000 * batch / latency if latency else None

    def most_rate(self, model, slices, most_ms, largest_batch):
        return max((1000 * batch / latency for batch, latency in self.latency.get((model, slices, 1), [])
                    if latency <= most_ms and batch <= largest_batch), default=0.0)

    def sub_linearity(self, model, batch):
        """Throughput of 7g over that of one slice of the smallest instance that runs the model (section 2.2)."""
        whole = self.throughput(model, 7, batch)
        for slices in SHARES:
            small = self.throughput(model, slices, batch)
            if small and whole:
                return whole / (small / slices)
        return None


def kind_of(ratio):
    """Section 2.2: linear between 6.5 and 7.5."""
    if ratio < 6.5:
        return "sub-linear"
    return "linear" if ratio <= 7.5 else "super-linear"


def drawn_devices(workload, models):
    """Needs in whole devices, from the distributions of the generated workloads."""
    source = random.Random(f"mig {workload}")
    normal = {"normal-1": lambda: 10 + 3 * source.gauss(0, 1), "normal-2": lambda: 16 + 6 * source.gauss(0, 1),
              "lognormal-1": lambda: 8 * source.lognormvariate(0, 0.6),
              "lognormal-2": lambda: 8 * source.lognormvariate(0, 1.0)}[workload]
    return {model: max(0.5, normal()) for model in models}


def saved(devices, whole):
    """The part of the whole devices that is saved, in percent."""
    return 100 * (1 - devices / whole)
