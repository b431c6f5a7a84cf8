"""The highest rates that a policy can schedule, relative to ideal: gpulet figure 17, gpu-let figure 16."""
import statistics
from dataclasses import dataclass, replace

import ladder
import pictures
import verdicts
from choices import ALL_POLICIES, Choice, command_of_a_row
from program import Planner
from stand_ins import EAGER
from weak_slowdowns import PART, weak_profiles
from workloads import GPULET, GPU_LET, MODELS, WORKLOADS, random_workloads

NAME = "against_ideal"
DEVICES = 4
RANDOM_WORKLOADS = 40
KINDS = ("none", "linear", "learned")
# What the papers report, both with interference (linear); the means have the applications as well.
PAPER_MEAN = {"elastic-published": 0.926, "elastic-preprint": 0.923}
PAPERS_KIND = "linear"
PAPERS_OWN = {"elastic-published": GPULET, "elastic-preprint": GPU_LET}
FIGURES = {"elastic-published": "gpulet figure 17", "elastic-preprint": "gpu-let figure 16"}
WEAK = "linear, weak slowdowns"


@dataclass(frozen=True)
class Ratios:
    """Of one choice, by workload."""
    choice: Choice
    kind: str  # of interference, in the tables
    of_ideal: dict

    def of(self, workloads):
        return [self.of_ideal[load.name] for load in workloads if load.name in self.of_ideal]

    def mean(self, workloads):
        parts = self.of(workloads)
        return f"{100 * statistics.mean(parts):.1f} %" if parts else "–"


def measure(measured, planner, kind, choice, workloads):
    step = 0

    def holds(asked):
        nonlocal step
        step += 1
        file = measured.scenarios(f"{NAME}/{choice.policy}-{kind.replace(', ', '-').replace(' ', '-')}-{step}", MODELS,
                                  [load.at(scale) for load, scale in asked])
        return planner.schedule_scenarios(choice, file)["rows"]

    return ladder.highest_scales(workloads, holds)


def ratios(outcomes, workloads):
    highest = {(kind, choice.policy): scales for (kind, choice), scales in outcomes}
    return [Ratios(choice, kind, {load.name: scale / best
                                  for load, scale, best in zip(workloads, scales, highest[kind, "ideal"]) if best > 0})
            for (kind, choice), scales in outcomes if choice.policy != "ideal"]


def claims(results, made):
    """The published algorithms on their own papers' workloads, with interference, beside what the papers report."""
    of = {(one.choice.policy, one.kind): one for one in made}
    rows = []
    for policy, workloads in PAPERS_OWN.items():
        ours = statistics.mean(of[policy, PAPERS_KIND].of(workloads))
        rows.append([f"`{policy}` reaches nearly the rates of ideal ({FIGURES[policy]}; interference {PAPERS_KIND})",
                     f"{100 * PAPER_MEAN[policy]:.1f} %", f"{100 * ours:.1f} %", EAGER, "`ideal`",
                     verdicts.more(ours, PAPER_MEAN[policy], 0.8), NAME])
        results.value(f"{policy}-of-ideal-none", of[policy, "none"].mean(workloads))
        results.value(f"{policy}-of-ideal-weak", of[policy, WEAK].mean(workloads))
    ours = statistics.mean(of["elastic", "learned"].of(GPULET))
    rows.append([f"{FIGURES['elastic-published']} with our default algorithm, `elastic` (interference learned)",
                 f"{100 * PAPER_MEAN['elastic-published']:.1f} %", f"{100 * ours:.1f} %", EAGER, "`ideal`",
                 verdicts.more(ours, PAPER_MEAN["elastic-published"], 0.8), NAME])
    results.value("elastic-of-ideal", f"{100 * ours:.1f} %")
    results.claims("claims-against-ideal", rows)


def tables(results, made, papers, drawn):
    rows = []
    for one in made:
        every = one.of(papers + drawn)
        reported = [f"{100 * PAPER_MEAN[policy]:.1f} %" if (one.choice.policy, one.kind) == (policy, PAPERS_KIND) else "–"
                    for policy in PAPERS_OWN]
        means = [one.mean(workloads) for workloads in PAPERS_OWN.values()]
        rows.append([f"`{one.choice.policy}`, {one.kind}", means[0], reported[0], means[1], reported[1], one.mean(drawn),
                     f"{100 * min(every):.1f} %", f"{100 * max(every):.1f} %",
                     sum(part < 0.995 for part in every), sum(part > 1.005 for part in every)])
    results.table("against_ideal", ["policy, interference", "mean of scen1 to scen5", "gpulet figure 17",
                                    "mean of gpu-let's three", "gpu-let figure 16", "mean of the random ones", "least",
                                    "most", "below ideal", "above ideal"], rows)


def draw(results, made, papers, drawn):
    kinds = list(dict.fromkeys(one.kind for one in made))
    drawing, axes = pictures.figure(1, len(kinds), width=1 + 3.6 * len(kinds), height=3.3, sharey=True, squeeze=False)
    for plot, kind in zip(axes[0], kinds):
        shown = [one for one in made if one.kind == kind]
        boxes = plot.boxplot([one.of(papers + drawn) for one in shown], whis=(0, 100), widths=0.55, patch_artist=True,
                             medianprops={"color": "black"})
        for box, one in zip(boxes["boxes"], shown):
            box.set_facecolor(pictures.COLOURS[one.choice.policy])
        for place, one in enumerate(shown, start=1):
            if kind == PAPERS_KIND and one.choice.policy in PAPER_MEAN:
                plot.plot(place, PAPER_MEAN[one.choice.policy], marker="D", markersize=5, color="#d62728",
                          linestyle="none", label="the paper's mean" if one.choice.policy == "elastic-published" else None)
        plot.axhline(1, color="black", linewidth=0.8, linestyle=":")
        plot.set_xticks(range(1, len(shown) + 1), [one.choice.policy for one in shown], rotation=40, ha="right")
        plot.set_title("without interference" if kind == "none" else kind)
        if kind == PAPERS_KIND:
            plot.legend(loc="lower right")
    axes[0][0].set_ylabel("highest rate, as a part of ideal's")
    pictures.save(drawing, results.plot("against_ideal"))


def run(measured, runner, results, quick):
    measured = measured.papers_models()
    if measured is None:
        print("    against_ideal: skipped; these measurements lack models of the papers' workloads", flush=True)
        return
    papers, drawn = (WORKLOADS[:2], ()) if quick else (WORKLOADS, random_workloads(RANDOM_WORKLOADS))
    scene = measured.scene("workloads", MODELS, DEVICES)
    planners = {kind: Planner(measured.gpulet, scene) for kind in (KINDS[:1] if quick else KINDS)}
    tasks = [(kind, Choice(policy, kind)) for kind in planners for policy in ALL_POLICIES]
    if not quick:
        planners[WEAK] = Planner(measured.gpulet, replace(scene, profiles=weak_profiles(measured)))
        tasks += [(WEAK, Choice(policy, PAPERS_KIND)) for policy in ALL_POLICIES if policy != "cover"]
    workloads = papers + drawn
    outcomes = list(zip(tasks, runner.map(
        NAME, lambda task: measure(measured, planners[task[0]], *task, workloads), tasks, lambda task: task[1].weight)))
    results.csv("against_ideal.csv",
                ["scripts/experiments --only against_ideal",
                 f"loads: gpulet schedule {command_of_a_row(scene)} --scenarios LADDER --json",
                 f"{WEAK}: with {100 * PART:.0f} % of the measured slowdowns"],
                ["workload", "source", *(f"{model}_part" for model in MODELS), "policy", "interference",
                 "highest_per_s"],
                [[load.name, load.source, *(round(part, 4) for part in load.shape), choice.policy, kind, scale]
                 for (kind, choice), scales in outcomes for load, scale in zip(workloads, scales)])
    made = ratios(outcomes, workloads)
    tables(results, made, papers, drawn)
    if not quick:
        claims(results, made)
    draw(results, made, papers, drawn)
