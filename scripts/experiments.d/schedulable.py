"""Schedulable scenarios: gpulet figures 5 and 16, gpu-let figures 4 and 15."""
import itertools
from dataclasses import dataclass

import numpy

import pictures
import verdicts
from choices import ALL_POLICIES, Choice, command_of_a_row
from measurements import NINE_MODELS, REFERENCE_MODELS
from program import Planner
from results import percent

NAME = "schedulable"
DEVICES = 4
RATES = (0, 200, 400, 600)          # gpu-let, section 3.1
NINE_RATES = (0, 100, 200)          # gpulet, section 3.2
SCALES = (3, 3.3, 4, 5)
PAPER_SCALES = (3, 4, 5)            # those of the plots and of the counts without interference
INTERFERENCE = ("none", "linear", "learned")
# At this scale, SBP on whole devices schedules about the same fraction of the scenarios as in gpulet figure 5
# (29.3 %), so the load of the other policies corresponds to the paper's.
NINE_SCALE = 6.1
NINE_POLICIES = ("sbp", "sbp-split", "greedy-best-fit", "elastic")
# Ideal tries every division for each scenario that it cannot schedule. It therefore gets every eighth of the 19,682
# scenarios, and so do the policies that are compared with it.
EIGHTH = 8
EIGHTH_POLICIES = ("elastic", "ideal")
PAPER_FIVE = {"sbp": 5772, "sbp-split": 19682}
# Scenarios that elastic schedules of those that ideal does, with interference: gpulet figure 16 (520 fewer of 19,682) and
# gpu-let figure 15 (18 fewer of 1,023).
PAPER_FEWER = {"gpulet": 520 / 19682, "gpu-let": 18 / 1023}


@dataclass(frozen=True)
class Run:
    choice: Choice
    study: str
    scale: float
    file: str

    @property
    def weight(self):
        many = {"reference": 1, "nine": 20, "eighth": 5}[self.study]
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
    for scale in (4,) if quick else SCALES:
        rows = vectors(RATES, len(models), scale)
        file = measured.scenarios(f"reference-{scale:g}", models, rows[::24] if quick else rows)
        for policy in ALL_POLICIES:
            kinds = INTERFERENCE if measured.has_pairs else ("none",)
            runs += [Run(Choice(policy, kind), "reference", scale, file) for kind in kinds]
            runs += [Run(Choice(policy, kinds[-1], setting), "reference", scale, file)
                     for setting in ("shipped", "defaults")]
    if not quick:
        rows = vectors(NINE_RATES, len(nine), NINE_SCALE)
        every, eighth = measured.scenarios("nine", nine, rows), measured.scenarios("eighth", nine, rows[::EIGHTH])
        runs += [Run(Choice(policy), "nine", NINE_SCALE, every) for policy in NINE_POLICIES]
        runs += [Run(Choice(policy), "eighth", NINE_SCALE, eighth) for policy in EIGHTH_POLICIES]
    return runs


def write_tables(results, outcomes):
    counts = {(run.choice, run.study, run.scale): out for run, out in outcomes}
    scales = sorted({run.scale for run, _ in outcomes if run.study == "reference"})
    shown = [scale for scale in scales if scale in PAPER_SCALES]
    total = next(out["scenarios"] for run, out in outcomes if run.study == "reference")

    def count(policy, scale, kind, setting="published"):
        out = counts.get((Choice(policy, kind, setting), "reference", scale))
        return out["schedulable"] if out else None

    rows = []
    for policy in ALL_POLICIES:
        row = [f"`{policy}`"]
        for scale in shown:
            mine, best = count(policy, scale, "none"), count("ideal", scale, "none")
            row += [mine, percent(mine, best)]
        rows.append(row)
    results.table("schedulable", ["policy"] + [text for scale in shown for text in (f"scale {scale:g}", "of ideal")],
                  rows)
    kinds = [kind for kind in INTERFERENCE if count("sbp", scales[0], kind) is not None]
    columns = [(kind, scale) for kind in (kinds[0], kinds[-1]) for scale in shown]
    results.table("non_monotonic", ["policy"] + [f"{kind}, {scale:g}" for kind, scale in columns],
                  [[f"`{policy}`"] + [counts[Choice(policy, kind), "reference", scale]["non_monotonic"]
                                      for kind, scale in columns] for policy in ALL_POLICIES])
    interference_tables(results, scales, kinds, count)
    nine_table(results, outcomes)
    if "learned" in kinds:
        claims(results, total, shown, count)
    return total, shown, kinds, count


def claims(results, total, scales, count):
    """What the figures say about the papers' claims, and the figures of the page's sentences."""
    gain = [count("sbp-split", scale, "none") / count("sbp", scale, "none") for scale in scales]
    with_neighbours = [count("sbp-split", scale, "learned") / count("sbp", scale, "learned") for scale in scales]
    fewer = {policy: [(count("ideal", scale, "learned") - count(policy, scale, "learned")) / total for scale in scales]
             for policy in ("elastic-published", "elastic")}
    of_ideal = {policy: [count(policy, scale, "learned") / count("ideal", scale, "learned") for scale in scales]
                for policy in fewer}

    def span(parts):
        return f"{100 * min(parts):.1f} to {100 * max(parts):.1f} %"

    results.value("fewer-than-ideal-published", span(fewer["elastic-published"]))
    results.value("fewer-than-ideal", span(fewer["elastic"]))
    results.value("of-ideal-published", span(of_ideal["elastic-published"]))
    results.value("of-ideal", span(of_ideal["elastic"]))
    scales_named = ", ".join(f"{scale:g}" for scale in scales)
    results.claims("claims-schedulable", [
        ["two halves make more scenarios schedulable than whole devices (gpulet figure 5, gpu-let figure 4; without "
         "interference)", "3.4 times as many", f"{min(gain):.2f} to {max(gain):.2f} times (scales {scales_named})",
         verdicts.more(max(gain), 19682 / 5772, 1), NAME],
        ["the same beside neighbours that cost time", "not shown",
         f"{min(with_neighbours):.2f} to {max(with_neighbours):.2f} times",
         verdicts.all_hold(part > 1 for part in with_neighbours), NAME],
        ["the published algorithm schedules nearly what ideal does (gpulet figure 16)",
         f"{100 * PAPER_FEWER['gpulet']:.1f} % fewer", span(fewer["elastic-published"]) + " fewer",
         verdicts.less(max(fewer["elastic-published"]), PAPER_FEWER["gpulet"], 0.25), NAME],
        ["the same of our default algorithm, `elastic`", f"{100 * PAPER_FEWER['gpu-let']:.1f} % fewer (gpu-let figure 15)",
         span(fewer["elastic"]) + " fewer", verdicts.less(max(fewer["elastic"]), PAPER_FEWER["gpu-let"], 0.25), NAME]])


def interference_tables(results, scales, kinds, count):
    columns = [(scale, kind) for scale in scales for kind in kinds[1:]]
    if columns:
        results.table("schedulable_interference", ["policy"] + [f"{kind}, {scale:g}" for scale, kind in columns],
                      [[f"`{policy}`"] + [count(policy, scale, kind) for scale, kind in columns]
                       for policy in ALL_POLICIES])
    for setting in ("defaults", "shipped"):
        results.table(f"schedulable_{setting}", ["policy"] + [f"scale {scale:g}" for scale in scales],
                      [[f"`{policy}`"] + [count(policy, scale, kinds[-1], setting) for scale in scales]
                       for policy in ALL_POLICIES])


def nine_table(results, outcomes):
    rows = [[f"`{run.choice.policy}`" + (", every eighth" if run.study == "eighth" else ""), f"{out['scenarios']:,}",
             f"{out['schedulable']:,}", percent(out["schedulable"], out["scenarios"]),
             f"{PAPER_FIVE[run.choice.policy]:,}" if run.choice.policy in PAPER_FIVE else "–"]
            for run, out in outcomes if run.study in ("nine", "eighth")]
    if rows:
        results.table("schedulable_nine", ["policy", "scenarios", "schedulable", "of these", "gpulet figure 5"], rows)


def draw(results, total, shown, kinds, count, outcomes):
    columns = 2 if len(kinds) > 1 else 1
    drawing, axes = pictures.figure(1, columns, width=4.8 * columns + 1, height=3.4, squeeze=False, sharey=True)
    for place, kind in enumerate(kinds[::len(kinds) - 1] if len(kinds) > 1 else kinds):
        plot = axes[0][place]
        values = {policy: [count(policy, scale, kind) for scale in shown] for policy in ALL_POLICIES}
        pictures.grouped_bars(plot, [f"scale {scale:g}" for scale in shown], ALL_POLICIES, values)
        plot.axhline(total, color="#bbbbbb", linewidth=0.8, linestyle=":")
        plot.set_title("without interference" if kind == "none" else f"interference {kind}")
    axes[0][0].set_ylabel(f"schedulable of {total:,}")
    axes[0][-1].legend(loc="center left", bbox_to_anchor=(1, 0.5))
    pictures.save(drawing, results.plot("schedulable"))
    nine = {run.choice.policy: out for run, out in outcomes if run.study == "nine"}
    if not nine:
        return
    drawing, axes = pictures.figure(width=6.2, height=3)
    names = list(nine)
    bars = axes.bar(range(len(names)), [nine[name]["schedulable"] for name in names], 0.6,
                    color=[pictures.COLOURS[name] for name in names])
    axes.bar_label(bars, [f"{nine[name]['schedulable']:,}" for name in names])
    for place, name in enumerate(names):
        if name in PAPER_FIVE:
            axes.hlines(PAPER_FIVE[name], place - 0.4, place + 0.4, color="black", linewidth=1.2,
                        label="gpulet figure 5" if name == "sbp" else None)
    axes.set_xticks(range(len(names)), names)
    axes.set_ylabel(f"schedulable of {nine['sbp']['scenarios']:,}")
    axes.set_ylim(0, 22500)
    axes.legend(loc="upper left")
    pictures.save(drawing, results.plot("schedulable_nine"))


def run(measured, runner, results, quick):
    models, nine = measured.choose(REFERENCE_MODELS), measured.choose(NINE_MODELS)
    scenes = {"reference": measured.scene("reference", models, DEVICES), "nine": measured.scene("nine", nine, DEVICES)}
    scenes["eighth"] = scenes["nine"]
    rows_of = {}

    def work(one):
        out = Planner(measured.gpulet, scenes[one.study]).schedule_scenarios(one.choice, one.file)
        if one.study == "reference":
            out["non_monotonic"] = count_non_monotonic(rows_of[one.file], out["rows"])
        return out

    runs = plan_runs(measured, models, nine, quick)
    for one in runs:
        if one.file not in rows_of and one.study == "reference":
            rows = vectors(RATES, len(models), one.scale)
            rows_of[one.file] = rows[::24] if quick else rows
    outcomes = list(zip(runs, runner.map(NAME, work, runs, lambda one: one.weight)))
    results.csv("schedulable.csv",
                ["scripts/experiments --only schedulable",
                 f"five models: gpulet schedule {command_of_a_row(scenes['reference'])} --scenarios SCENARIOS --json",
                 f"nine models: gpulet schedule {command_of_a_row(scenes['nine'])} --scenarios SCENARIOS --json"],
                ["scenarios", "scale", "policy", "interference", "setting", "count", "schedulable", "non_monotonic"],
                [[one.file, one.scale, one.choice.policy, one.choice.interference, one.choice.setting,
                  out["scenarios"], out["schedulable"], out.get("non_monotonic", "")] for one, out in outcomes])
    total, shown, kinds, count = write_tables(results, outcomes)
    draw(results, total, shown, kinds, count, outcomes)
