"""The highest rates that a policy can schedule, relative to ideal: gpulet figure 17, gpu-let figure 16."""
import statistics
from dataclasses import dataclass

import ladder
import pictures
import verdicts
from choices import ALL_POLICIES, Choice, command_of_a_row
from program import Planner
from workloads import GPULET, GPU_LET, MODELS, WORKLOADS, random_workloads

NAME = "against_ideal"
DEVICES = 4
RANDOM_WORKLOADS = 40
KINDS = ("none", "learned")
POLICIES = tuple(policy for policy in ALL_POLICIES if policy != "ideal")
# Of the mean of a paper's workloads, both with interference.
PAPER_MEAN = {"elastic-published": 0.926, "elastic-preprint": 0.923}
PAPERS_OWN = {"elastic-published": GPULET, "elastic-preprint": GPU_LET}


@dataclass(frozen=True)
class Ratios:
    """Of one choice, by workload."""
    choice: Choice
    of_ideal: dict

    def of(self, workloads):
        return [self.of_ideal[load.name] for load in workloads if load.name in self.of_ideal]


def measure(measured, planner, models, choice, workloads):
    step = 0

    def holds(asked):
        nonlocal step
        step += 1
        file = measured.scenarios(f"{NAME}/{choice.name}-{step}", models, [load.at(scale) for load, scale in asked])
        return planner.schedule_scenarios(choice, file)["rows"]

    return ladder.highest_scales(workloads, holds)


def ratios(outcomes, workloads):
    highest = dict(outcomes)
    made = []
    for choice, scales in outcomes:
        ideal = highest[Choice("ideal", choice.interference)]
        made.append(Ratios(choice, {load.name: scale / best for load, scale, best in zip(workloads, scales, ideal)
                                    if best > 0}))
    return made


def claims(results, made):
    """The published algorithms on their own papers' workloads, with interference, beside what the papers report."""
    rows = []
    for policy, paper in (("elastic-published", "gpulet figure 17"), ("elastic-preprint", "gpu-let figure 16")):
        one = next(one for one in made if one.choice == Choice(policy, "learned"))
        ours = statistics.mean(one.of(PAPERS_OWN[policy]))
        rows.append([f"`{policy}` reaches nearly the rates of ideal ({paper})", f"{100 * PAPER_MEAN[policy]:.1f} %",
                     f"{100 * ours:.1f} %", verdicts.more(ours, PAPER_MEAN[policy], 0.8), NAME])
    default = next(one for one in made if one.choice == Choice("elastic", "learned"))
    results.value("elastic-of-ideal", f"{100 * statistics.mean(default.of(GPULET)):.1f} %")
    results.claims("claims-against-ideal", rows)


def tables(results, made, papers, drawn):
    rows = []
    for one in made:
        if one.choice.policy == "ideal":
            continue
        every = one.of(papers + drawn)
        mean = f"{100 * PAPER_MEAN[one.choice.policy]:.1f} %" if one.choice.policy in PAPER_MEAN else "–"
        rows.append([f"`{one.choice.policy}`, {one.choice.interference}",
                     f"{100 * statistics.mean(one.of(papers)):.1f} %", mean,
                     f"{100 * statistics.mean(one.of(drawn)):.1f} %" if drawn else "–",
                     f"{100 * min(every):.1f} %", f"{100 * max(every):.1f} %",
                     sum(part < 0.995 for part in every), sum(part > 1.005 for part in every)])
    results.table("against_ideal", ["policy, interference", "mean of the papers' workloads", "the papers'",
                                    "mean of the random ones", "least", "most", "below ideal", "above ideal"], rows)


def draw(results, made, papers, drawn):
    kinds = sorted({one.choice.interference for one in made}, key=KINDS.index)
    drawing, axes = pictures.figure(1, len(kinds), width=1 + 4.3 * len(kinds), height=3.3, sharey=True, squeeze=False)
    for plot, kind in zip(axes[0], kinds):
        shown = [one for one in made if one.choice.interference == kind and one.choice.policy != "ideal"]
        boxes = plot.boxplot([one.of(papers + drawn) for one in shown], whis=(0, 100), widths=0.55, patch_artist=True,
                             medianprops={"color": "black"})
        for box, one in zip(boxes["boxes"], shown):
            box.set_facecolor(pictures.COLOURS[one.choice.policy])
        for place, one in enumerate(shown, start=1):
            if one.choice.policy in PAPER_MEAN:
                plot.plot(place, PAPER_MEAN[one.choice.policy], marker="D", markersize=5, color="#d62728",
                          linestyle="none", label="the paper's mean" if one.choice.policy == "elastic-published" else None)
        plot.axhline(1, color="black", linewidth=0.8, linestyle=":")
        plot.set_xticks(range(1, len(shown) + 1), [one.choice.policy for one in shown], rotation=25, ha="right")
        plot.set_title("without interference" if kind == "none" else f"interference {kind}")
    axes[0][0].set_ylabel("highest rate, as a part of ideal's")
    axes[0][0].legend(loc="lower right")
    pictures.save(drawing, results.plot("against_ideal"))


def run(measured, runner, results, quick):
    measured = measured.papers_models()
    if measured is None:
        print("    against_ideal: skipped; these measurements lack models of the papers' workloads", flush=True)
        return
    models = MODELS
    papers, drawn = (WORKLOADS[:2], ()) if quick else (WORKLOADS, random_workloads(RANDOM_WORKLOADS))
    planner = Planner(measured.gpulet, measured.scene("workloads", models, DEVICES))
    kinds = KINDS if measured.has_pairs and not quick else KINDS[:1]
    choices = [Choice(policy, kind) for kind in kinds for policy in ALL_POLICIES]
    workloads = papers + drawn
    outcomes = list(zip(choices, runner.map(
        NAME, lambda choice: measure(measured, planner, models, choice, workloads), choices,
        lambda choice: choice.weight)))
    results.csv("against_ideal.csv",
                ["scripts/experiments --only against_ideal",
                 f"loads: gpulet schedule {command_of_a_row(planner.scene)} --scenarios LADDER --json"],
                ["workload", "source", *(f"{model}_part" for model in models), "policy", "interference",
                 "highest_per_s"],
                [[load.name, load.source, *(round(part, 4) for part in load.shape), choice.policy,
                  choice.interference, scale] for choice, scales in outcomes for load, scale in zip(workloads, scales)])
    made = ratios(outcomes, workloads)
    tables(results, made, papers, drawn)
    if not quick:
        claims(results, made)
    draw(results, made, papers, drawn)
