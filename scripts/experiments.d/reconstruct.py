"""Rebuilds measurements of an RTX 2080 Ti from what gpulet's authors published. They did not publish latencies.

    python3 scripts/experiments.d/reconstruct.py [--curve NAME] [--seed N] --out FOLDER
    python3 scripts/experiments.d/reconstruct.py --gpulet PROGRAM

Writes latency.csv, utilization.csv and interference.csv to FOLDER, or makes profiles/reference-2080ti of them, with every
assumption in its provenance. rtx_2080_ti.csv has the published figures.
"""
import argparse
import csv
import json
import random
import subprocess
import tempfile
from pathlib import Path

from stand_ins import read_rows

PUBLISHED = Path("scripts/experiments.d/rtx_2080_ti.csv")
PROFILE = Path("profiles/reference-2080ti")
SIZES = (20, 40, 50, 60, 80, 100)
WHOLE = 100
LARGEST_BATCH = 32
# Table 3 of the paper: an objective is twice the latency of a batch of 32 on the whole GPU.
OBJECTIVES_MS = {"googlenet": 66, "lenet": 5, "resnet50": 108, "ssd-mobilenetv1": 202, "vgg16": 142, "mnasnet1_0": 62,
                 "mobilenet_v2": 64, "densenet161": 202, "bert": 22}
# Section 3.4: the batches of the pairs and the sizes of the two gpulets.
PAIRED_BATCHES = (2, 4, 8, 16, 32)
RATIOS = ((20, 80), (40, 60), (50, 50), (60, 40), (80, 20))
# The constants of section 4.4 that the authors published with their program.
L2_SELF, L2_OTHER, DRAM_SELF, DRAM_OTHER, CONSTANT = (
    0.11290838746224496, 0.7159598718755424, 0.35486591956022895, 0.0882038259888065, 0.8953693917277343)
# Figure 10: the model is off by at most 10.26 % in nine cases of ten, of a normal distribution 1.645 deviations.
ERROR_OF_MODEL = 0.1026 / 1.645
# Between equal measurements.
NOISE = 0.02
CURVES = ("figure-4", "A", "B")
PROVENANCE = {
    "device": "reconstructed, not measured: four RTX 2080 Ti of gpulet (Choi et al., USENIX ATC 2022)",
    "partitioning": "mps",
    "source": "utilisation and kernel durations by batch, and the constants of the interference model, as gpulet's authors "
              "published them in casys-kaist/glet, resource/2080ti (commit 3c1c2aad); tables and figures of the paper",
    "method": "scripts/experiments.d/reconstruct.py, curve figure-4, seed 1",
    "assumption 1": "L(32, 100 %) is half of the objective in table 3, which is twice that latency (section 5.1)",
    "assumption 2": "a batch launches the same kernels whatever its size, so L(b, 100 %) is proportional to the published mean "
                    "duration of a kernel; it never falls as the batch grows",
    "assumption 3": "in a share p of the GPU, the part of the time during which the multiprocessors are busy (the published "
                    "SM utilisation u of that batch) grows as 1 / p, and the rest stays: L(b, p) = L(b, 100 %) (1 - u + u / p). "
                    "Figure 4: steep for large batches, nearly flat for small ones, with falling returns",
    "assumption 4": "utilisation of L2 and memory in a share is the published one times the share, as in the authors' program",
    "assumption 5": "a neighbour slows a batch down as the published linear model says (section 4.4), times a normal error of "
                    "6.2 %, which makes nine of ten errors at most 10.26 % (figure 10); never below 1",
    "assumption 6": "batches 2 to 32 and the sizes 2:8, 4:6, 5:5 of the pairs are the paper's (section 3.4); all nine models are "
                    "paired, where the paper paired five",
    "assumption 7": "equal measurements differ by 2 % (standard deviation); the order by batch and share is kept",
    "assumption 8": "memory limits nothing: the paper has 11 GB and groups the models by memory (table 4) without limits",
    "check": "nine of ten slowdowns are below 18 % in the paper (figure 7), which none of these assumptions uses",
}


def stretch(curve, batch, utilisation, share):
    """How many times longer a batch takes in that share of the GPU (0 to 1) than on the whole of it."""
    if curve == "figure-4":
        return 1 - utilisation + utilisation / share
    if curve == "A":
        needed = 0.2 + 0.8 * (batch.bit_length() - 1) / (LARGEST_BATCH.bit_length() - 1)
        return max(1.0, needed / share)
    return max(1.0, utilisation / share)


class Published:
    """By model and batch: the published rows."""

    def __init__(self, rows):
        self.of = {(row["model"], int(row["batch"])): {name: float(value) for name, value in row.items()
                                                       if name not in ("model", "batch")} for row in rows}
        self.batches = sorted({batch for _, batch in self.of})

    def whole_ms(self, model, batch):
        """Batches launch the same kernels, whatever their size."""
        kernels_ms = [self.of[model, smaller]["kernel_ms"] for smaller in self.batches if smaller <= batch]
        return OBJECTIVES_MS[model] / 2 * max(kernels_ms) / max(
            self.of[model, one]["kernel_ms"] for one in self.batches)

    def use(self, model, batch, size):
        """L2 and memory bandwidth in use: the authors' program multiplies utilisation by the share."""
        row = self.of[model, batch]
        return row["l2_util"] * size / WHOLE, row["dram_util"] * size / WHOLE


def latencies(published, curve, source):
    """{(model, batch, size): ms}, with noise, longer for larger batches and smaller shares; L(32, 100) as in table 3."""
    made = {}
    for model in OBJECTIVES_MS:
        for batch in published.batches:
            whole_ms = published.whole_ms(model, batch)
            utilisation = published.of[model, batch]["sm_util"]
            for size in reversed(SIZES):
                exact_ms = whole_ms * stretch(curve, batch, utilisation, size / WHOLE)
                if (batch, size) != (LARGEST_BATCH, WHOLE):
                    exact_ms *= 1 + NOISE * source.gauss(0, 1)
                made[model, batch, size] = exact_ms
        sort_latencies(made, model, published.batches)
    return made


def sort_latencies(made, model, batches):
    """Removes what noise turned round: no batch takes longer than a larger one, or than in a smaller share."""
    for batch in reversed(batches):
        for size in reversed(SIZES):
            bounds = [made[model, larger, size] for larger in batches if larger > batch]
            made[model, batch, size] = min([made[model, batch, size], *bounds])
    for batch in batches:
        for place in range(len(SIZES) - 2, -1, -1):
            made[model, batch, SIZES[place]] = max(made[model, batch, SIZES[place]],
                                                   made[model, batch, SIZES[place + 1]])


def slowdown(own, other):
    """Section 4.4, for (L2, memory) of the batch and of its neighbour."""
    return L2_SELF * own[0] + L2_OTHER * other[0] + DRAM_SELF * own[1] + DRAM_OTHER * other[1] + CONSTANT


def pairs(published, latency, source):
    """Rows of interference.csv."""
    for model in OBJECTIVES_MS:
        for batch in PAIRED_BATCHES:
            for size, rest in RATIOS:
                for other in OBJECTIVES_MS:
                    for beside in PAIRED_BATCHES:
                        exact = slowdown(published.use(model, batch, size), published.use(other, beside, rest))
                        seen = max(1.0, exact * (1 + ERROR_OF_MODEL * source.gauss(0, 1)))
                        yield [model, batch, size, other, beside, rest, seen * latency[model, batch, size]]


def write(file, columns, rows):
    with open(file, "w", encoding="utf-8", newline="") as opened:
        writer = csv.writer(opened, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows([f"{value:.5g}" if isinstance(value, float) else value for value in row] for row in rows)


def write_tables(folder, curve="figure-4", seed=1, names=None):
    """The three tables. `names`: other names for the models."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    source = random.Random(seed)
    published = Published(read_rows(PUBLISHED))
    named = names or {model: model for model in OBJECTIVES_MS}
    latency = latencies(published, curve, source)
    write(folder / "latency.csv", ("model", "batch", "partition", "latency_ms"),
          [[named[model], batch, size, ms] for (model, batch, size), ms in sorted(latency.items())])
    write(folder / "utilization.csv", ("model", "batch", "partition", "l2_util", "dram_util"),
          [[named[model], batch, size, *published.use(model, batch, size)] for model, batch, size in sorted(latency)])
    write(folder / "interference.csv",
          ("model", "batch", "partition", "other_model", "other_batch", "other_partition", "latency_ms"),
          [[named[row[0]], *row[1:3], named[row[3]], *row[4:]] for row in pairs(published, latency, source)])


def make_profile(gpulet):
    with tempfile.TemporaryDirectory() as folder:
        write_tables(folder)
        tables = [part for name in ("latency", "utilization", "interference")
                  for part in (f"--{name}", str(Path(folder, f"{name}.csv")))]
        subprocess.run([gpulet, "profile", "import", "--name", PROFILE.name, *tables, "--out", PROFILE.parent], check=True)
    file = PROFILE / "profile.json"
    document = json.loads(file.read_text(encoding="utf-8"))
    document["provenance"] = PROVENANCE
    file.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--curve", choices=CURVES, default="figure-4")
    parser.add_argument("--seed", type=int, default=1)
    target = parser.add_mutually_exclusive_group(required=True)
    target.add_argument("--out")
    target.add_argument("--gpulet")
    arguments = parser.parse_args()
    if arguments.gpulet:
        make_profile(arguments.gpulet)
    else:
        write_tables(arguments.out, arguments.curve, arguments.seed)


if __name__ == "__main__":
    main()
