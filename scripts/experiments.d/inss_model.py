"""InSS's latency model against measurements: tables 2 and 3."""
import statistics
from dataclasses import dataclass

import verdicts
from files import read_csv
from inss_setup import FAST, Setup
from program import run_json
from stand_ins import EAGER

NAME = "inss_model"
BATCHES = (1, 4, 8, 16)
SHARES = (20, 40, 60, 80)
TABLE_SHARE, TABLE_BATCH = 40, 4   # the paper has 30 % and 4
MODELS = ("resnet50", "mobilenet", "vgg19")
PAIRS = (("resnet50", "vgg19"), ("vgg19", "densenet121"))
# The errors of tables 2 and 3: least and most.
PAPER_BATCHES, PAPER_SHARES = (0.041, 3.265), (0.214, 3.861)


@dataclass(frozen=True)
class Cell:
    model: str
    batch: int
    share: int
    other: tuple    # (model, batch, share), or empty
    fitted: bool
    measured_ms: float
    predicted_ms: float

    @property
    def error(self):
        return abs(self.predicted_ms / self.measured_ms - 1)


def cells_of(setup):
    file = setup.path("inss-cells.csv")
    run_json([str(setup.gpulet), "profile", "check", "--profiles", str(setup.profiles), "--name", FAST, "--inss-cells",
              str(file), "--json"])
    return [Cell(row["model"], int(row["batch"]), int(row["partition"]),
                 (row["other_model"], int(row["other_batch"]), int(row["other_partition"]))
                 if row["other_model"] else (), row["fitted"] == "1", float(row["measured_ms"]),
                 float(row["predicted_ms"])) for row in read_csv(file)]


def summary(cells):
    errors = sorted(cell.error for cell in cells)
    if not errors:
        return ["0", "–", "–", "–"]
    return [f"{len(errors):,}", f"{100 * statistics.median(errors):.1f} %",
            f"{100 * errors[int(0.9 * (len(errors) - 1))]:.1f} %", f"{100 * errors[-1]:.1f} %"]


def shown(cells):
    """Observed / predicted (error) of cells in one table cell; an asterisk marks a fitted one."""
    if not cells:
        return "–"
    cell = cells[0]
    return f"{cell.measured_ms:.2f} / {cell.predicted_ms:.2f} ({100 * cell.error:.1f} %){'*' if cell.fitted else ''}"


def error_table(setup, name, columns, cells_by):
    """A row for each of MODELS alone and of PAIRS. cells_by(model, other, value): the cells of a column."""
    lines = []
    for model, other in (*((model, None) for model in MODELS), *PAIRS):
        lines.append([f"{model} beside {other}" if other else model,
                      *(shown(cells_by(model, other, value)) for value in columns)])
    setup.results.table(name, ["model", *columns.values()], lines)


def tables(setup, cells):
    """Tables 2 and 3: by batch at one share, and by share with one batch. Neighbours have a batch of TABLE_BATCH."""
    def chosen(model, other, batch, share):
        return [cell for cell in cells if (cell.model, cell.batch, cell.share) == (model, batch, share)
                and (cell.other[:2] == (other, TABLE_BATCH) if other else not cell.other)]

    error_table(setup, "inss_table_2", {batch: f"batch {batch}" for batch in BATCHES},
                lambda model, other, batch: chosen(model, other, batch, TABLE_SHARE))
    error_table(setup, "inss_table_3", {share: f"{share} %" for share in SHARES},
                lambda model, other, share: chosen(model, other, TABLE_BATCH, share))


def claims(results, errors):
    alone, beside = errors["alone, in-sample"], errors["beside one other, held out"]
    papers = max(PAPER_BATCHES[1], PAPER_SHARES[1]) / 100
    results.claims("claims-inss-model", [
        ["predicts the latency of cells that it is fitted to (tables 2 and 3)", f"at most {100 * papers:.1f} %",
         f"at most {100 * max(alone):.1f} % (in-sample)", EAGER, "measured", verdicts.less(max(alone), papers, 0.5), NAME],
        ["predicts the latency beside neighbours (tables 2 and 3)", f"at most {100 * papers:.1f} %",
         f"half of all held-out pairs at most {100 * statistics.median(beside):.1f} %, worst {100 * max(beside):.0f} %",
         EAGER, "measured", verdicts.less(max(beside), papers, 0.5), NAME]])


def run(measured, runner, results, quick):
    setup = Setup(measured, runner, results, quick)
    cells = cells_of(setup)
    alone = [cell for cell in cells if not cell.other]
    pairs = [cell for cell in cells if cell.other]
    groups = {"alone, in-sample": [cell for cell in alone if cell.fitted],
              "alone, held out": [cell for cell in alone if not cell.fitted],
              "beside one other, in-sample": [cell for cell in pairs if cell.fitted],
              "beside one other, held out": [cell for cell in pairs if not cell.fitted]}
    papers = {"alone, in-sample": "0.04 to 3.9 % (tables 2 and 3, alone and beside one or two others)"}
    setup.results.csv("inss_model.csv", [f"scripts/experiments --only {NAME}",
                                         f"gpulet profile check --name {FAST} --inss-cells FILE"],
                      ["model", "batch", "partition", "other_model", "other_batch", "other_partition", "fitted",
                       "measured_ms", "predicted_ms"],
                      [[cell.model, cell.batch, cell.share, *(cell.other or ("", "", "")), cell.fitted,
                        cell.measured_ms, cell.predicted_ms] for cell in alone]
                      + [[cell.model, cell.batch, cell.share, *cell.other, cell.fitted, cell.measured_ms,
                          cell.predicted_ms] for cell in pairs if cell.fitted])
    setup.results.table("inss_errors", ["cells", "number", "p50", "p90", "worst", "the paper"],
                        [[name, *summary(group), papers.get(name, "not shown")] for name, group in groups.items()])
    tables(setup, cells)
    claims(results, {name: [cell.error for cell in group] for name, group in groups.items()})
