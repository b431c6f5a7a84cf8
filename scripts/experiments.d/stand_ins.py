"""The nine models of the gpulet paper, by measured models that stand in for them.

The measurements lack most of the papers' models. Each gets the latencies of the measured model that is nearest in kind,
multiplied so that its objective is that of table 3 of the paper: an objective is twice the latency of a batch of 32 on a
whole device. So objectives have the paper's relation to each other and to what a server adds to a request.
Utilisation and slowdowns by neighbours are the measured model's.
"""
import csv
import io
from dataclasses import dataclass
from pathlib import Path

BATCH, WHOLE = 32, 100
EAGER = "A100, eager"  # the reference measurements, in the tables of claims


@dataclass(frozen=True)
class StandIn:
    measured: str
    papers_slo_ms: float  # table 3


# MobileNet stands in for LeNet and for SSD-MobileNet, whose backbone it is; ResNet101 for BERT, the only one that is not
# convolutional; VGG-19 for VGG-16, whose slowdown beside others was not measured.
MODELS = {"goo": StandIn("inception", 66), "le": StandIn("mobilenet", 5), "res": StandIn("resnet50", 108),
          "ssd": StandIn("mobilenet", 202), "vgg": StandIn("vgg19", 142), "nas": StandIn("mobilenet", 62),
          "mob": StandIn("mobilenet", 64), "den": StandIn("densenet121", 202), "be": StandIn("resnet101", 22)}


def read_rows(file):
    with open(file, encoding="utf-8", newline="") as opened:
        return list(csv.DictReader(opened))


def factors(latency_rows):
    """What the latencies of each model's stand-in are multiplied by."""
    whole = {row["model"]: float(row["latency_ms"]) for row in latency_rows
             if (int(row["batch"]), int(row["partition"])) == (BATCH, WHOLE)}
    return {model: one.papers_slo_ms / 2 / whole[one.measured] for model, one in MODELS.items()}


def renamed(rows, factor_of):
    """The rows of measured models as rows of the models that they stand for; of pairs, one for each pair of models."""
    for row in rows:
        for model, one in MODELS.items():
            if one.measured != row["model"]:
                continue
            made = {**row, "model": model}
            if "latency_ms" in row:
                made["latency_ms"] = f"{float(row['latency_ms']) * factor_of[model]:.6g}"
            if "other_model" not in row:
                yield made
                continue
            for other, neighbour in MODELS.items():
                if neighbour.measured == row["other_model"]:
                    yield {**made, "other_model": other}


def write_tables(source, target, without=()):
    """CSV tables of the nine models below `target`. `without`: measured models whose pairs are left out."""
    source, target = Path(source), Path(target)
    target.mkdir(parents=True, exist_ok=True)
    factor_of = factors(read_rows(source / "latency.csv"))
    for name in ("latency", "utilization", "interference"):
        rows = read_rows(source / f"{name}.csv")
        if name == "interference":
            rows = [row for row in rows if row["model"] not in without and row["other_model"] not in without]
        text = io.StringIO()
        writer = csv.DictWriter(text, rows[0].keys(), lineterminator="\n")
        writer.writeheader()
        writer.writerows(renamed(rows, factor_of))
        (target / f"{name}.csv").write_text(text.getvalue(), encoding="utf-8")
