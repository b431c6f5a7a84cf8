"""Latency over shares and slowdown by neighbours, as measured: gpulet figures 4, 7, 9 and 10, gpu-let figures 3, 6, 8, 9."""
import random

import numpy

import pictures
import verdicts
from stand_ins import EAGER, read_rows

NAME = "neighbours"
# Those of gpulet figure 4 that were measured, or the ones that stand in for them.
SHOWN = ("inception", "resnet50", "mobilenet", "vgg16")
BATCHES = (1, 2, 4, 8, 16, 32)
MARKS = (0.5, 0.9, 0.95, 1.0)
# gpulet: a neighbour costs less than 18 % in 90 % of the cases (figure 7); the prediction is off by at most 10.26 % in 90 %
# of the cases and 13.98 % in 95 % (figure 10).
PAPER_OVERHEAD = {0.9: 0.18}
PAPER_ERROR = {0.9: 0.1026, 0.95: 0.1398}
TRAINED_PART = 1750 / 2500  # of the co-runs, at random, as in the paper
SEED = 1


def whole_number(row, *columns):
    return tuple(int(row[column]) for column in columns)


def latencies(rows):
    return {(row["model"], *whole_number(row, "batch", "partition")): float(row["latency_ms"]) for row in rows}


def utilisations(rows):
    return {(row["model"], *whole_number(row, "batch", "partition")): (float(row["l2_util"]), float(row["dram_util"]))
            for row in rows}


class CoRuns:
    """The measured pairs whose latency alone and whose utilisations are known as well."""

    def __init__(self, folder):
        alone = latencies(read_rows(folder / "latency.csv"))
        use = utilisations(read_rows(folder / "utilization.csv"))
        self.names, slowdown, features = [], [], []
        for row in read_rows(folder / "interference.csv"):
            mine = (row["model"], *whole_number(row, "batch", "partition"))
            other = (row["other_model"], *whole_number(row, "other_batch", "other_partition"))
            if mine not in alone or mine not in use or other not in use:
                continue
            self.names.append((row["model"], row["other_model"]))
            slowdown.append(float(row["latency_ms"]) / alone[mine])
            # gpulet, section 4.4: c1 L2 of the model, c2 of its neighbour, c3 and c4 the memory bandwidth, c5.
            features.append((use[mine][0], use[other][0], use[mine][1], use[other][1], 1.0))
        self.slowdown, self.features = numpy.array(slowdown), numpy.array(features)

    def errors(self, trained):
        """The relative errors of the published model on the co-runs that it was not fitted to."""
        coefficients, *_ = numpy.linalg.lstsq(self.features[trained], self.slowdown[trained], rcond=None)
        held = ~trained
        return numpy.abs(self.features[held] @ coefficients - self.slowdown[held]) / self.slowdown[held]


def at_random(count):
    chosen = random.Random(SEED).sample(range(count), round(TRAINED_PART * count))
    trained = numpy.zeros(count, dtype=bool)
    trained[chosen] = True
    return trained


def quantiles(values, papers):
    """[(text of the fraction, ours, the paper's or None)]"""
    return [(f"{100 * mark:.0f} %", float(numpy.quantile(values, mark)), papers.get(mark)) for mark in MARKS]


def draw_latencies(results, alone):
    drawing, axes = pictures.figure(1, len(SHOWN), width=11, height=2.9)
    for plot, model in zip(axes, SHOWN):
        for batch in BATCHES:
            sizes = sorted(size for name, of, size in alone if (name, of) == (model, batch))
            plot.plot(sizes, [alone[model, batch, size] for size in sizes], marker="o", markersize=3, label=f"b{batch}")
        plot.set_title(model)
        plot.set_xlabel("share of the GPU, %")
    axes[0].set_ylabel("latency, ms")
    axes[-1].legend(loc="center left", bbox_to_anchor=(1, 0.5))
    pictures.save(drawing, results.plot("latency_over_share"))


def draw_cdf(plot, values, papers, label):
    ordered = numpy.sort(values)
    plot.plot(100 * ordered, numpy.arange(1, len(ordered) + 1) / len(ordered), color=pictures.COLOURS["elastic"],
              label="ours")
    for place, (mark, value) in enumerate(papers.items()):
        plot.plot(100 * value, mark, marker="D", markersize=5, color="#d62728", linestyle="none",
                  label=None if place else "the paper")
    plot.set_xlabel(label)
    plot.set_xlim(0, 150)
    plot.legend(loc="lower right")


def knee_table(results, alone):
    """gpulet figure 9: the size with the most rate above the line from nothing to the best rate, by batch limit."""
    rows = []
    for model in sorted({name for name, _, _ in alone}):
        slo_ms = 2 * alone[model, BATCHES[-1], 100]
        sizes = sorted({size for name, _, size in alone if name == model})
        rates = []
        for size in sizes:
            fitting = [1000 * batch / alone[model, batch, size] for batch in BATCHES
                       if 2 * alone[model, batch, size] <= slo_ms]
            rates.append(max(fitting, default=0.0))
        merit = [rate / max(rates) - size / sizes[-1] for rate, size in zip(rates, sizes)]
        rows.append([f"`{model}`", f"{slo_ms:.1f} ms", *(f"{rate:.0f}" for rate in rates),
                     f"{sizes[merit.index(max(merit))]} %"])
    results.table("knees", ["model", "SLO", *(f"{size} %" for size in sizes), "knee"], rows)


def run(measured, runner, results, quick):
    if not measured.has_pairs or any(model not in measured.latency for model in SHOWN):
        print("    neighbours: skipped; these measurements lack pairs or models of the figures", flush=True)
        return
    alone = latencies(read_rows(measured.folder / "latency.csv"))
    co_runs = CoRuns(measured.folder)
    overhead = co_runs.slowdown - 1
    errors = co_runs.errors(at_random(len(overhead)))
    draw_latencies(results, alone)
    drawing, axes = pictures.figure(1, 2, width=8, height=3)
    draw_cdf(axes[0], overhead, PAPER_OVERHEAD, "slowdown by a neighbour, %")
    draw_cdf(axes[1], errors, PAPER_ERROR, "error of the predicted latency, %")
    axes[0].set_ylabel("fraction of the co-runs")
    pictures.save(drawing, results.plot("neighbours"))
    knee_table(results, alone)
    rows = [[what, *entry] for what, values, papers in (("slowdown", overhead, PAPER_OVERHEAD),
                                                        ("error", errors, PAPER_ERROR))
            for entry in quantiles(values, papers)]
    results.csv("neighbours.csv", ["scripts/experiments --only neighbours",
                                   f"the linear model of gpulet, section 4.4, fitted to {100 * TRAINED_PART:.0f} % of "
                                   f"{len(overhead)} co-runs, chosen at random with seed {SEED}; errors are those of the rest"],
                ["what", "fraction", "ours", "paper"],
                [[what, fraction, ours, "" if paper is None else paper] for what, fraction, ours, paper in rows])
    results.table("neighbours", ["", "50 %", "90 %", "95 %", "all"], [
        [f"{what}, at most", *(f"{100 * ours:.1f} %" + (f" (paper {100 * paper:.1f} %)" if paper else "")
                              for name, _, ours, paper in rows if name == kind)]
        for what, kind in (("slowdown by a neighbour", "slowdown"), ("error of the linear model", "error"))])
    of = {(what, fraction): ours for what, fraction, ours, _ in rows}
    results.claims("claims-neighbours", [
        ["a neighbour costs little in nine cases of ten (gpulet figure 7)", "below 18 %",
         f"below {100 * of['slowdown', '90 %']:.0f} %", EAGER, "alone", verdicts.less(of["slowdown", "90 %"], 0.18, 0.5), NAME],
        ["a linear model of L2 and memory use predicts the slowdown (gpulet figure 10; held out at random)",
         "within 10.3 % in nine cases of ten", f"within {100 * of['error', '90 %']:.1f} %", EAGER,
         "the measured latency", verdicts.less(of["error", "90 %"], PAPER_ERROR[0.9], 0.5), NAME]])
