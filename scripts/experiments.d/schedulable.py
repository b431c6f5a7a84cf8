"""Schedulable scenarios: gpulet figures 5 and 16, gpu-let figures 4 and 15."""
import itertools
from dataclasses import dataclass, replace

import numpy

import pictures
import verdicts
from choices import ALL_POLICIES, Choice, command_of_a_row
from measurements import NINE_MODELS, REFERENCE_MODELS
from program import Planner
from results import percent
from stand_ins import EAGER
from weak_slowdowns import PART, weak_profiles

NAME = "schedulable"
DEVICES = 4
RATES = (0, 200, 400, 600)          # gpu-let, section 3.1
NINE_RATES = (0, 100, 200)          # gpulet, section 3.2
SCALES = (3, 4, 5)
INTERFERENCE = ("none", "linear", "learned")
# At this scale, SBP on whole devices schedules about the same fraction of the scenarios as in gpulet figure 5
# (29.3 %), so the load of the other policies corresponds to the paper's.
NINE_SCALE = 6.1
NINE_POLICIES = ("static-equal", "sbp", "sbp-split", "greedy-best-fit", "elastic-preprint", "elastic-published", "elastic",
                 "ideal")
# Ideal tries every division for each scenario that it cannot schedule, which takes long. Where it takes part, every policy
# gets the same regular part of the scenarios. The step has no factor in common with the number of rates, so that each
# model has each rate equally often.
THIRTEENTH = 13  # of the 19,682
SEVENTH = 7      # of the 1,023 with the defaults
PAPER_FIVE = {"sbp": 5772, "sbp-split": 19682}
# Scenarios that elastic schedules fewer than ideal, of all, with interference: gpulet figure 16 and gpu-let figure 15.
PAPER_FEWER = {"elastic-published": 520 / 19682, "elastic-preprint": 18 / 1023}
LEAST_FEWER = 0.25  # from this part on, elastic is not near to ideal


@dataclass(frozen=True)
class Run:
    choice: Choice
    study: str
    scale: float
    file: str

    @property
    def weight(self):
        many = {"reference": 1, "seventh": 2, "nine": 5, "thirteenth": 5, "thirteenth-weak": 5}[self.study]
        return self.choice.weight * many


def vectors(rates, models, scale):
    """Every combination but all zeros; the first model's rate changes fastest."""
    every = itertools.product(rates, repeat=models)
    return [tuple(rate * scale for rate in reversed(row)) for row in every if any(row)]


def count_non_monotonic(rows, schedulable):
    """Pairs of scenarios of which the heavier (no model has a lower rate) is schedulable and the lighter one is not."""
    rates = numpy.array(rows)
    can = numpy.array(schedulable, dtype=bool)
    heavy = rates[can]
    return int(sum((heavy >= light).all(axis=1).sum() for light in rates[~can]))


def plan_runs(measured, models, nine, quick):
    runs = []
    kinds = INTERFERENCE if measured.has_pairs else ("none",)
    for scale in (4,) if quick else SCALES:
        rows = vectors(RATES, len(models), scale)[::47 if quick else 1]
        every = measured.scenarios(f"reference-{scale:g}", models, rows)
        seventh = measured.scenarios(f"seventh-{scale:g}", models, rows[::SEVENTH])
        for policy in ALL_POLICIES:
            runs += [Run(Choice(policy, kind), "reference", scale, every) for kind in kinds]
            runs.append(Run(Choice(policy, kinds[-1], "shipped"), "reference", scale, every))
            runs.append(Run(Choice(policy, kinds[-1], "defaults"), "seventh", scale, seventh))
    rows = vectors(NINE_RATES, len(nine), NINE_SCALE)[::997 if quick else 1]
    every = measured.scenarios("nine", nine, rows)
    thirteenth = measured.scenarios("thirteenth", nine, rows[::THIRTEENTH])
    for policy in NINE_POLICIES:
        if policy != "ideal":
            runs.append(Run(Choice(policy), "nine", NINE_SCALE, every))
        runs += [Run(Choice(policy, kind), "thirteenth", NINE_SCALE, thirteenth) for kind in kinds]
        if measured.has_pairs:
            runs.append(Run(Choice(policy, "linear"), "thirteenth-weak", NINE_SCALE, thirteenth))
    return runs


class Counts:
    """The numbers of schedulable scenarios of all runs."""

    def __init__(self, outcomes):
        self.outcomes = outcomes
        self.of_run = {(run.study, run.scale, run.choice): out for run, out in outcomes}
        self.scales = sorted({run.scale for run, _ in outcomes if run.study == "reference"})
        self.kinds = [kind for kind in INTERFERENCE
                      if ("reference", self.scales[0], Choice("sbp", kind)) in self.of_run]

    def of(self, policy, scale, kind, setting="published", study="reference"):
        out = self.of_run.get((study, scale, Choice(policy, kind, setting)))
        return out["schedulable"] if out else None

    def nine(self, policy, kind, study):
        return self.of(policy, NINE_SCALE, kind, study=study)

    def total(self, study):
        return next((out["scenarios"] for (of, _, _), out in self.of_run.items() if of == study), 0)

    def fewer(self, policy, kind):
        """Than ideal, as a part of all of the five models' scenarios, at each scale."""
        return [(self.of("ideal", scale, kind) - self.of(policy, scale, kind)) / self.total("reference")
                for scale in self.scales]

    def fewer_of_nine(self, policy, kind, study):
        return (self.nine("ideal", kind, study) - self.nine(policy, kind, study)) / self.total(study)


def five_tables(results, counts):
    rows = []
    for policy in ALL_POLICIES:
        row = [f"`{policy}`"]
        for scale in counts.scales:
            mine, best = counts.of(policy, scale, "none"), counts.of("ideal", scale, "none")
            row += [mine, percent(mine, best)]
        rows.append(row)
    results.table("schedulable", ["policy"] + [text for scale in counts.scales
                                               for text in (f"scale {scale:g}", "of ideal")], rows)
    columns = [(kind, scale) for kind in (counts.kinds[0], counts.kinds[-1]) for scale in counts.scales]
    results.table("non_monotonic", ["policy"] + [f"{kind}, {scale:g}" for kind, scale in columns],
                  [[f"`{policy}`"] + [counts.of_run["reference", scale, Choice(policy, kind)]["non_monotonic"]
                                      for kind, scale in columns] for policy in ALL_POLICIES])
    columns = [(scale, kind) for scale in counts.scales for kind in counts.kinds[1:]]
    if columns:
        results.table("schedulable_interference", ["policy"] + [f"{kind}, {scale:g}" for scale, kind in columns],
                      [[f"`{policy}`"] + [counts.of(policy, scale, kind) for scale, kind in columns]
                       for policy in ALL_POLICIES])
    for setting, study in (("shipped", "reference"), ("defaults", "seventh")):
        rows = []
        for policy in ALL_POLICIES:
            row = [f"`{policy}`"]
            for scale in counts.scales:
                mine, best = (counts.of(name, scale, counts.kinds[-1], setting, study) for name in (policy, "ideal"))
                row += [mine, percent(mine, best)]
            rows.append(row)
        results.table(f"schedulable_{setting}", ["policy"] + [text for scale in counts.scales
                                                              for text in (f"scale {scale:g}", "of ideal")], rows)


def nine_table(results, counts):
    rows = []
    for policy in NINE_POLICIES:
        mine = counts.nine(policy, "none", "nine")
        row = [f"`{policy}`", *(("–", "–") if mine is None else (f"{mine:,}", percent(mine, counts.total("nine")))),
               f"{PAPER_FIVE[policy]:,}" if policy in PAPER_FIVE else "–"]
        for kind, study in (("none", "thirteenth"), ("linear", "thirteenth"), ("learned", "thirteenth"),
                            ("linear", "thirteenth-weak")):
            if kind in counts.kinds:
                row += [f"{counts.nine(policy, kind, study):,}"]
        rows.append(row)
    part = f"{counts.total('thirteenth'):,}"
    columns = ["policy", f"none, of {counts.total('nine'):,}", "that is", "gpulet figure 5", f"none, of {part}"]
    if "linear" in counts.kinds:
        columns += [f"linear, of {part}", f"learned, of {part}", f"linear, weak slowdowns, of {part}"]
    results.table("schedulable_nine", columns, rows)


def span(parts):
    low, high = f"{100 * min(parts):.1f}", f"{100 * max(parts):.1f}"
    return f"{high} %" if low == high else f"{low} to {high} %"


def claims(results, counts):
    """What the figures say about the papers' claims, and the figures of the page's sentences."""
    gain = counts.nine("sbp-split", "none", "nine") / counts.nine("sbp", "none", "nine")
    with_neighbours = counts.nine("sbp-split", "linear", "thirteenth") / counts.nine("sbp", "linear", "thirteenth")
    weak = counts.nine("sbp-split", "linear", "thirteenth-weak") / counts.nine("sbp", "linear", "thirteenth-weak")
    published = counts.fewer_of_nine("elastic-published", "linear", "thirteenth")
    preprint = counts.fewer("elastic-preprint", "linear")
    default_nine = counts.fewer_of_nine("elastic", "learned", "thirteenth")
    default_five = counts.fewer("elastic", "learned")
    unhindered = {policy: counts.fewer_of_nine(policy, "none", "thirteenth")
                  for policy in ("elastic-published", "elastic")}
    weak_fewer = {policy: counts.fewer_of_nine(policy, "linear", "thirteenth-weak") for policy in unhindered}
    for policy, name in (("elastic-published", "published"), ("elastic", "default")):
        results.value(f"fewer-none-{name}", span([unhindered[policy]]))
        results.value(f"fewer-weak-{name}", span([weak_fewer[policy]]))
        for kind in ("linear", "learned"):
            results.value(f"fewer-{kind}-{name}", span(counts.fewer(policy, kind)))
            results.value(f"fewer-{kind}-{name}-nine", span([counts.fewer_of_nine(policy, kind, "thirteenth")]))
            results.value(f"of-ideal-{kind}-{name}", span([counts.of(policy, scale, kind) / counts.of("ideal", scale, kind)
                                                           for scale in counts.scales]))
    results.value("halves-none", f"{gain:.2f}")
    results.value("halves-linear", f"{with_neighbours:.2f}")
    results.value("halves-weak", f"{weak:.2f}")
    papers = {policy: f"{100 * fewer:.1f} % fewer" for policy, fewer in PAPER_FEWER.items()}
    scales = ", ".join(f"{scale:g}" for scale in counts.scales)
    results.claims("claims-schedulable", [
        ["two halves make more scenarios schedulable than whole devices (gpulet figure 5; nine models, no interference)",
         f"{19682 / 5772:.1f} times as many", f"{gain:.2f} times", EAGER, "`sbp`", verdicts.more(gain, 19682 / 5772, 1), NAME],
        ["the same beside neighbours that cost time (interference linear)", "not shown", f"{with_neighbours:.2f} times", EAGER,
         "`sbp`", verdicts.all_hold([with_neighbours > 1]), NAME],
        ["`elastic-published` schedules nearly what ideal does (gpulet figure 16; nine models, interference linear)",
         papers["elastic-published"], f"{span([published])} fewer", EAGER, "`ideal`",
         verdicts.less(published, PAPER_FEWER["elastic-published"], LEAST_FEWER), NAME],
        [f"`elastic-preprint` schedules nearly what ideal does (gpu-let figure 15; five models, interference linear, "
         f"scales {scales})", papers["elastic-preprint"], f"{span(preprint)} fewer", EAGER, "`ideal`",
         verdicts.less(max(preprint), PAPER_FEWER["elastic-preprint"], LEAST_FEWER), NAME],
        ["gpulet figure 16 with our default algorithm, `elastic` (nine models, interference learned)",
         papers["elastic-published"], f"{span([default_nine])} fewer", EAGER, "`ideal`",
         verdicts.less(default_nine, PAPER_FEWER["elastic-published"], LEAST_FEWER), NAME],
        [f"gpu-let figure 15 with our default algorithm, `elastic` (five models, interference learned, scales {scales})",
         papers["elastic-preprint"], f"{span(default_five)} fewer", EAGER, "`ideal`",
         verdicts.less(max(default_five), PAPER_FEWER["elastic-preprint"], LEAST_FEWER), NAME]])


def draw(results, counts):
    kinds, scales = counts.kinds, counts.scales
    columns = 2 if len(kinds) > 1 else 1
    drawing, axes = pictures.figure(1, columns, width=4.8 * columns + 1, height=3.4, squeeze=False, sharey=True)
    for place, kind in enumerate(kinds[::len(kinds) - 1] if len(kinds) > 1 else kinds):
        plot = axes[0][place]
        values = {policy: [counts.of(policy, scale, kind) for scale in scales] for policy in ALL_POLICIES}
        pictures.grouped_bars(plot, [f"scale {scale:g}" for scale in scales], ALL_POLICIES, values)
        plot.axhline(counts.total("reference"), color="#bbbbbb", linewidth=0.8, linestyle=":")
        plot.set_title("without interference" if kind == "none" else f"interference {kind}")
    axes[0][0].set_ylabel(f"schedulable of {counts.total('reference'):,}")
    axes[0][-1].legend(loc="center left", bbox_to_anchor=(1, 0.5))
    pictures.save(drawing, results.plot("schedulable"))
    panels = [("none", "thirteenth", "no interference")]
    if "linear" in kinds:
        panels += [("linear", "thirteenth", "interference linear"),
                   ("linear", "thirteenth-weak", f"{100 * PART:.0f} % of the slowdowns")]
    drawing, axes = pictures.figure(1, len(panels), width=3.6 * len(panels), height=3.3, squeeze=False, sharey=True)
    for plot, (kind, study, title) in zip(axes[0], panels):
        heights = [100 * counts.nine(policy, kind, study) / counts.total(study) for policy in NINE_POLICIES]
        bars = plot.bar(range(len(NINE_POLICIES)), heights, 0.6, color=[pictures.COLOURS[name] for name in NINE_POLICIES])
        plot.bar_label(bars, [f"{height:.0f}" for height in heights])
        for place, name in enumerate(NINE_POLICIES):
            if name in PAPER_FIVE and kind == "none":
                plot.hlines(100 * PAPER_FIVE[name] / 19682, place - 0.4, place + 0.4, color="black", linewidth=1.2,
                            label="gpulet figure 5" if name == "sbp" else None)
        plot.set_xticks(range(len(NINE_POLICIES)), NINE_POLICIES, rotation=35, ha="right")
        plot.set_title(title)
    axes[0][0].set_ylabel("schedulable, %")
    axes[0][0].set_ylim(0, 118)
    axes[0][0].legend(loc="upper left")
    pictures.save(drawing, results.plot("schedulable_nine"))


def run(measured, runner, results, quick):
    models, nine = measured.choose(REFERENCE_MODELS), measured.choose(NINE_MODELS)
    five = measured.scene("reference", models, DEVICES)
    larger = measured.scene("nine", nine, DEVICES)
    scenes = {"reference": five, "seventh": five, "nine": larger, "thirteenth": larger}
    if measured.has_pairs:
        scenes["thirteenth-weak"] = replace(larger, profiles=weak_profiles(measured))

    def work(one):
        out = Planner(measured.gpulet, scenes[one.study]).schedule_scenarios(one.choice, one.file)
        if one.study == "reference":
            rows = vectors(RATES, len(models), one.scale)[::47 if quick else 1]
            out["non_monotonic"] = count_non_monotonic(rows, out["rows"])
        return out

    runs = plan_runs(measured, models, nine, quick)
    outcomes = list(zip(runs, runner.map(NAME, work, runs, lambda one: one.weight)))
    results.csv("schedulable.csv",
                ["scripts/experiments --only schedulable",
                 f"reference, seventh: gpulet schedule {command_of_a_row(five)} --scenarios SCENARIOS --json",
                 f"nine, thirteenth: gpulet schedule {command_of_a_row(larger)} --scenarios SCENARIOS --json",
                 f"thirteenth-weak: as thirteenth, with {100 * PART:.0f} % of the measured slowdowns"],
                ["study", "scenarios", "scale", "policy", "interference", "setting", "count", "schedulable",
                 "non_monotonic"],
                [[one.study, one.file, one.scale, one.choice.policy, one.choice.interference, one.choice.setting,
                  out["scenarios"], out["schedulable"], out.get("non_monotonic", "")] for one, out in outcomes])
    counts = Counts(outcomes)
    five_tables(results, counts)
    nine_table(results, counts)
    if "linear" in counts.kinds:
        claims(results, counts)
    draw(results, counts)
