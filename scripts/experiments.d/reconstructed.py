"""Scenarios and rates on a reconstructed RTX 2080 Ti: gpulet figures 5, 16, 17, gpu-let figures 15 and 16."""
import statistics
from dataclasses import dataclass

import data_sets
import ladder
import pictures
import verdicts
from choices import Choice, command_of_a_row
from data_sets import FIVE, HEADLINE, RECONSTRUCTED, SEEDS, SENSITIVITY
from neighbours import latencies
from program import Planner
from results import percent
from schedulable import LEAST_FEWER, NINE_RATES, PAPER_FEWER, PAPER_FIVE, RATES, THIRTEENTH, vectors
from stand_ins import read_rows
from workloads import GPULET, GPU_LET, MODELS

NAME = "reconstructed"
DEVICES = 4
# Nine models at the paper's rates: the paper's algorithms, its program, and ours.
NINE = ("static-equal", "sbp", "sbp-shipped", "sbp-split", "greedy-best-fit", "elastic-published", "elastic-shipped",
        "elastic-one-pass", "ideal-published")
# These search for each scenario that they cannot schedule, so they get every thirteenth.
SLOW = ("elastic", "ideal")
FIVE_POLICIES = ("sbp-shipped", "sbp-split", "elastic-preprint", "elastic-preprint-published", "elastic-published", "elastic",
                 "ideal-published")
KINDS = ("none", "linear")
# What the verdicts need, for every variant.
OF_VARIANTS = (Choice("sbp-shipped"), Choice("sbp-split"), Choice("elastic-published", "linear"),
               Choice("ideal-published", "linear"))
PAPERS_FEWER = {"nine": PAPER_FEWER["elastic-published"], "five": PAPER_FEWER["elastic-preprint"]}
SWEEP = (1, 1.5, 2, 2.5, 3)  # times the paper's rates
SWEPT = (Choice("sbp-shipped"), Choice("sbp-split", "linear"), Choice("elastic-published", "linear"),
         Choice("elastic-shipped", "linear"), Choice("elastic", "linear"), Choice("ideal-published", "linear"))
# Figure 17 and the preprint's 16: what is compared with ideal-published, on whose workloads, and the paper's mean.
PAPER_RATES = (("elastic-published", GPULET, 0.926, "gpulet figure 17"),
               ("elastic-preprint-published", GPU_LET, 0.923, "gpu-let figure 16"))
RATES_OF = ("sbp-shipped", "elastic-preprint-published", "elastic-published", "elastic-shipped", "elastic")


@dataclass(frozen=True)
class Count:
    """Of one policy's schedulable scenarios."""
    variant: data_sets.Variant
    study: str  # nine, thirteenth, five, or sweep-SCALE
    choice: Choice

    @property
    def weight(self):
        return self.choice.weight * {"nine": 13, "five": 2}.get(self.study, 1)


def rows_of(study):
    if study == "five":
        return FIVE, vectors(RATES, len(FIVE), 1)
    if study == "nine":
        return MODELS, vectors(NINE_RATES, len(MODELS), 1)
    scale = float(study.removeprefix("sweep-")) if study.startswith("sweep-") else 1
    return MODELS, vectors(NINE_RATES, len(MODELS), scale)[::THIRTEENTH]


def plan_counts(quick):
    counts = [Count(HEADLINE, "nine", Choice(policy, kind)) for policy in NINE for kind in KINDS]
    counts += [Count(HEADLINE, "thirteenth", Choice(policy, kind)) for policy in (*SLOW, "elastic-published")
               for kind in KINDS]
    counts += [Count(variant, "nine", choice) for variant in (*SEEDS[1:], *SENSITIVITY) for choice in OF_VARIANTS]
    counts += [Count(HEADLINE, "five", Choice(policy, kind)) for policy in FIVE_POLICIES for kind in KINDS]
    counts += [Count(variant, "five", Choice(policy, "linear")) for variant in (*SEEDS[1:], *SENSITIVITY)
               for policy in ("elastic-preprint-published", "ideal-published")]
    counts += [Count(HEADLINE, f"sweep-{scale:g}", choice) for scale in SWEEP for choice in SWEPT]
    return counts[::7] if quick else counts


class Data:
    """The planners of the variants."""

    def __init__(self, measured):
        self.of = {variant: data_sets.reconstructed(measured, variant) for variant in (*SEEDS, *SENSITIVITY)}

    def scene(self, variant, models):
        return self.of[variant].scene("five" if models == FIVE else "nine", models, DEVICES)

    def planner(self, variant, models):
        return Planner(self.of[variant].gpulet, self.scene(variant, models))

    def count(self, one, quick):
        models, rows = rows_of(one.study)
        rows = rows[::97] if quick else rows
        file = self.of[one.variant].scenarios(one.study, models, rows)
        return self.planner(one.variant, models).schedule_scenarios(one.choice, file)

    def highest(self, variant, choice, workloads):
        """The highest schedulable rates of the workloads."""
        steps = iter(range(1, 100))

        def holds(asked):
            file = self.of[variant].scenarios(f"{NAME}-{choice.name}-{next(steps)}", MODELS,
                                              [load.at(scale) for load, scale in asked])
            return self.planner(variant, MODELS).schedule_scenarios(choice, file)["rows"]

        return ladder.highest_scales(workloads, holds)


class Counts:
    def __init__(self, outcomes):
        self.of_count = dict(outcomes)

    def schedulable(self, study, policy, kind="none", variant=HEADLINE):
        return self.of_count[Count(variant, study, Choice(policy, kind))]["schedulable"]

    def total(self, study):
        return next(out["scenarios"] for one, out in self.of_count.items() if one.study == study)

    def fewer(self, study, policy, variants):
        """Than ideal-published, as parts of all scenarios."""
        return [(self.schedulable(study, "ideal-published", "linear", variant) -
                 self.schedulable(study, policy, "linear", variant)) / self.total(study) for variant in variants]


def interval(values, digits=1, factor=100, unit=" %"):
    low, high = f"{factor * min(values):.{digits}f}", f"{factor * max(values):.{digits}f}"
    return f"{low}{unit}" if low == high else f"{low} to {high}{unit}"


def tables(results, counts):
    whole, part = counts.total("nine"), counts.total("thirteenth")
    rows = []
    for policy in NINE:
        row = [f"`{policy}`"]
        for kind in KINDS:
            mine = counts.schedulable("nine", policy, kind)
            row += [f"{mine:,}", percent(mine, whole)]
        rows.append([*row, f"{PAPER_FIVE[policy]:,}" if policy in PAPER_FIVE else
                     "19,162" if policy == "elastic-published" else "19,682" if policy == "ideal-published" else "–"])
    for policy in SLOW:
        row = [f"`{policy}`, every thirteenth"]
        for kind in KINDS:
            mine = counts.schedulable("thirteenth", policy, kind)
            row += [f"{mine:,} of {part:,}", percent(mine, part)]
        rows.append([*row, "–"])
    results.table("reconstructed_nine", ["policy", f"no interference, of {whole:,}", "that is", f"linear, of {whole:,}",
                                         "that is", "the paper"], rows)
    five = counts.total("five")
    results.table("reconstructed_five", ["policy", f"no interference, of {five:,}", f"linear, of {five:,}"],
                  [[f"`{policy}`", *(counts.schedulable("five", policy, kind) for kind in KINDS)]
                   for policy in FIVE_POLICIES])
    rows = []
    for variant in (*SEEDS, *SENSITIVITY):
        rows.append([variant.name, *(f"{counts.schedulable('nine', choice.policy, choice.interference, variant):,}"
                                     for choice in OF_VARIANTS),
                     interval(counts.fewer("nine", "elastic-published", [variant])),
                     interval(counts.fewer("five", "elastic-preprint-published", [variant]))])
    results.table("reconstructed_variants", ["data", *(f"`{choice.name}`" for choice in OF_VARIANTS),
                                             "figure 16: fewer than ideal", "gpu-let figure 15: fewer than ideal"], rows)


def draw(results, counts):
    drawing, axes = pictures.figure(1, 1, width=6.5, height=3.3)
    for choice in SWEPT:
        axes.plot(SWEEP, [percent_of(counts, scale, choice) for scale in SWEEP], marker="o", markersize=3,
                  color=pictures.COLOURS.get(choice.name), label=choice.name)
    axes.set_xlabel("times the paper's rates")
    axes.set_ylabel("schedulable, %")
    axes.set_ylim(0, 103)
    axes.legend(loc="center left", bbox_to_anchor=(1, 0.5))
    pictures.save(drawing, results.plot("reconstructed_sweep"))


def percent_of(counts, scale, choice):
    study = f"sweep-{scale:g}"
    return 100 * counts.schedulable(study, choice.policy, choice.interference) / counts.total(study)


def measure_rates(data, runner, quick):
    """{(variant, policy): {workload: rate}} with interference linear."""
    variants = (HEADLINE,) if quick else (*SEEDS, *SENSITIVITY)
    loads = (*GPULET, *GPU_LET)
    tasks = [(variant, policy) for variant in variants for policy in (*RATES_OF, "ideal-published")]
    found = runner.map(f"{NAME}, rates", lambda task: data.highest(task[0], Choice(task[1], "linear"), loads), tasks)
    return {task: dict(zip((load.name for load in loads), rates)) for task, rates in zip(tasks, found)}


def of_ideal(rates, variant, policy, workloads):
    return statistics.mean(rates[variant, policy][load.name] / rates[variant, "ideal-published"][load.name]
                           for load in workloads)


def rate_table(results, rates):
    rows = [[f"`{policy}`", *(f"{100 * of_ideal(rates, HEADLINE, policy, [load]):.1f} %" for load in (*GPULET, *GPU_LET)),
             *(f"{100 * of_ideal(rates, HEADLINE, policy, loads):.1f} %" for loads in (GPULET, GPU_LET))]
            for policy in RATES_OF]
    results.table("reconstructed_rates", ["policy", *(load.name for load in (*GPULET, *GPU_LET)), "mean of scen1 to scen5",
                                          "mean of gpu-let's three"], rows)


def slowdown_value(results, data):
    """Nine of ten are below it: compared with figure 7."""
    folder = data.of[HEADLINE].folder
    alone = latencies(read_rows(folder / "latency.csv"))
    slowdowns = sorted(float(row["latency_ms"]) / alone[row["model"], int(row["batch"]), int(row["partition"])] - 1
                       for row in read_rows(folder / "interference.csv"))
    results.value("reconstructed-slowdown", f"{100 * slowdowns[int(0.9 * len(slowdowns))]:.1f} %")


def claims(results, counts, rates):
    """Headline cells: the printed algorithms on the reconstructed GPU at the papers' rates, with interference linear."""
    whole, fewest = PAPER_FIVE["sbp-split"], PAPER_FIVE["sbp"]
    gains = [counts.schedulable("nine", "sbp-split", "none", variant) /
             max(1, counts.schedulable("nine", "sbp-shipped", "none", variant)) for variant in SEEDS]
    rows = [["two halves make more scenarios schedulable than whole devices (gpulet figure 5)",
             f"{whole:,} and {fewest:,}: {whole / fewest:.1f} times as many", f"{interval(gains, 2, 1, ' times')}",
             RECONSTRUCTED, "`sbp-shipped`", verdicts.more(min(gains), whole / fewest, 1), NAME]]
    for study, policy, figure in (("nine", "elastic-published", "gpulet figure 16"),
                                  ("five", "elastic-preprint-published", "gpu-let figure 15")):
        fewer = counts.fewer(study, policy, SEEDS)
        curves = counts.fewer(study, policy, SENSITIVITY)
        rows.append([f"`{policy}` schedules nearly what ideal does ({figure})", f"{100 * PAPERS_FEWER[study]:.1f} % fewer",
                     f"{interval(fewer)} fewer; curves A and B: {interval(curves)}", RECONSTRUCTED, "`ideal-published`",
                     verdicts.over_variants(
                         [verdicts.less(part, PAPERS_FEWER[study], LEAST_FEWER) for part in fewer],
                         [verdicts.less(part, PAPERS_FEWER[study], LEAST_FEWER) for part in curves]), NAME])
    for policy, workloads, paper, figure in PAPER_RATES:
        means = [of_ideal(rates, variant, policy, workloads) for variant in SEEDS]
        curves = [of_ideal(rates, variant, policy, workloads) for variant in SENSITIVITY]
        rows.append([f"`{policy}` reaches nearly the rates of ideal ({figure})", f"{100 * paper:.1f} %",
                     f"{interval(means)}; curves A and B: {interval(curves)}", RECONSTRUCTED, "`ideal-published`",
                     verdicts.over_variants([verdicts.more(mean, paper, 0.8) for mean in means],
                                            [verdicts.more(mean, paper, 0.8) for mean in curves]), NAME])
    results.claims("claims-reconstructed", rows)


def run(measured, runner, results, quick):
    data = Data(measured)
    counts = plan_counts(quick)
    outcomes = list(zip(counts, runner.map(NAME, lambda one: data.count(one, quick), counts, lambda one: one.weight)))
    rates = measure_rates(data, runner, quick)
    scene = data.scene(HEADLINE, MODELS)
    results.csv("reconstructed.csv",
                ["scripts/experiments --only reconstructed",
                 f"gpulet schedule {command_of_a_row(scene)} --scenarios SCENARIOS --json"],
                ["curve", "seed", "scenarios", "policy", "interference", "count", "schedulable"],
                [[one.variant.curve, one.variant.seed, one.study, one.choice.policy, one.choice.interference,
                  out["scenarios"], out["schedulable"]] for one, out in outcomes])
    results.csv("reconstructed_rates.csv",
                ["scripts/experiments --only reconstructed",
                 f"gpulet schedule {command_of_a_row(scene)} --scenarios LADDER --json"],
                ["curve", "seed", "policy", "workload", "highest_per_s"],
                [[variant.curve, variant.seed, policy, load, rate]
                 for (variant, policy), of_load in rates.items() for load, rate in of_load.items()])
    if quick:
        return
    found = Counts(outcomes)
    tables(results, found)
    rate_table(results, rates)
    slowdown_value(results, data)
    draw(results, found)
    claims(results, found, rates)
