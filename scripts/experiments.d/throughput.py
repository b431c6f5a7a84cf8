"""Throughput within the SLO: gpulet figures 13 and 14, gpu-let figures 12 and 13."""
import statistics

import ladder
import pictures
from choices import Choice, command_of_a_row
from program import Planner
from workloads import MODELS, WORKLOADS

NAME = "throughput"
DEVICES = 4
SECONDS = 20
SEEDS = (1, 2, 3)          # as in the papers: the median of three runs
MOST_VIOLATIONS = 0.01
RUNGS = 12                 # of each of the two ladders below the highest schedulable load
KINDS = (("sbp", "none"), ("greedy-best-fit", "none"), ("elastic", "none"), ("elastic", "learned"),
         ("cover", "learned"))
# For figure 14: violations at the highest load that one of the two considers schedulable.
FIGURE_14 = (("elastic", "none"), ("elastic", "linear"), ("elastic", "learned"))


class Study:
    def __init__(self, measured, seeds):
        self.measured, self.seeds = measured, seeds
        self.models = measured.choose(MODELS)
        self.planner = Planner(measured.gpulet, measured.scene("workloads", self.models, DEVICES))

    def file(self, name, asked):
        return self.measured.scenarios(f"{NAME}/{name}", self.models, [load.at(scale) for load, scale in asked])

    def schedulable(self, workload, choice):
        name = f"{workload.name}-{choice.name}-{choice.setting}"
        return ladder.highest_scales([workload], lambda asked: self.planner.schedule_scenarios(
            choice, self.file(name, asked))["rows"])[0]

    def violations(self, workload, choice, scales, seed):
        """The fraction of requests that are late or dropped at each scale; None if no plan serves that load."""
        name = f"{workload.name}-{choice.name}-{choice.setting}-{seed}"
        file = self.file(name, [(workload, scale) for scale in scales])
        rows = self.planner.simulate_scenarios(choice, file, SECONDS, seed)["rows"]
        return [row.get("violation") for row in rows]

    def kept(self, workload, choice, highest, seed):
        """The highest scale up to `highest` that keeps 99 % of the requests within the SLO, and the lowest that fails.

        Between them lie scales that do and scales that do not: a plan for less load uses fewer devices, and may be the
        tighter one.
        """
        low, first_over = 0.0, None
        step = highest
        for _ in range(2):
            step /= RUNGS
            rungs = [low + step * number for number in range(1, RUNGS + 1)]
            seen = self.violations(workload, choice, [rung for rung in rungs if rung <= highest * (1 + 1e-9)], seed)
            good = [part is not None and part <= MOST_VIOLATIONS for part in seen]
            if first_over is None:
                first_over = next((rung for rung, holds in zip(rungs, good) if not holds), highest)
            low = max((rung for rung, holds in zip(rungs, good) if holds), default=low)
            if low >= highest * (1 - 1e-9):
                return highest, first_over
        return low, first_over

    def measure(self, task):
        workload, choice = task
        highest = self.schedulable(workload, choice)
        found = [self.kept(workload, choice, highest, seed) if highest else (0.0, 0.0) for seed in self.seeds]
        return highest, [kept for kept, _ in found], min(over for _, over in found)


def setting_name(papers):
    return "margin 1, no headroom (the papers' setting)" if papers else "defaults (margin 1.05, headroom)"


def tables(results, outcomes, workloads):
    median = {(load.name, choice): statistics.median(kept) for (load, choice), (_, kept, _) in outcomes}
    for papers in (True, False):
        choices = [Choice(policy, kind, papers) for policy, kind in KINDS]
        present = [choice for choice in choices if (workloads[0].name, choice) in median]
        rows = [[load.name] + [f"{median[load.name, choice]:.0f}" for choice in present] for load in workloads]
        means = [statistics.geometric_mean(max(median[load.name, choice], 1) for load in workloads)
                 for choice in present]
        rows.append(["**geometric mean**"] + [f"**{mean:.0f}**" for mean in means])
        rows.append(["beside `sbp`"] + [f"{100 * mean / means[0] - 100:+.1f} %" for mean in means])
        results.table(f"throughput_{'papers' if papers else 'defaults'}",
                      ["workload"] + [f"`{choice.name}`" for choice in present], rows)
    return median


def draw(results, median, workloads):
    drawing, axes = pictures.figure(2, 1, width=9, height=5.4, sharex=True, sharey=True)
    for plot, papers in zip(axes, (True, False)):
        choices = [choice for choice in (Choice(policy, kind, papers) for policy, kind in KINDS)
                   if (workloads[0].name, choice) in median]
        values = {choice.name: [median[load.name, choice] for load in workloads] for choice in choices}
        pictures.grouped_bars(plot, [load.name for load in workloads], list(values), values)
        plot.set_title(setting_name(papers))
        plot.set_ylabel("requests/s within SLO")
    axes[0].legend(ncols=len(values), loc="lower left", bbox_to_anchor=(0, 1.1))
    pictures.save(drawing, results.plot("throughput"))


def figure_14(study, runner, results, outcomes, workloads):
    """Violations at the highest load that elastic can schedule, with and without an interference model."""
    highest = {(load.name, choice): top for (load, choice), (top, _, _) in outcomes}
    tasks = []
    for load in workloads:
        tops = [highest[load.name, Choice("elastic", kind)] for kind in ("none", "learned")]
        tasks += [(load, Choice(policy, kind), max(tops), seed) for policy, kind in FIGURE_14 for seed in study.seeds]
    seen = runner.map("throughput, figure 14",
                      lambda task: study.violations(task[0], task[1], [task[2]], task[3])[0], tasks)
    results.csv("violations_at_highest.csv", commands(study),
                ["workload", "policy", "interference", "setting", "requests_per_s", "seed", "violation"],
                [[load.name, choice.policy, choice.interference, choice.setting, scale, seed,
                  "not schedulable" if part is None else part]
                 for (load, choice, scale, seed), part in zip(tasks, seen)])
    by_task = dict(zip(tasks, seen))
    rows = []
    for load in workloads:
        row = [load.name]
        for policy, kind in FIGURE_14:
            parts = [part for task, part in by_task.items() if task[0] == load and task[1] == Choice(policy, kind)]
            row.append("N" if parts[0] is None else f"{100 * statistics.median(parts):.2f} %")
        scale = next(task[2] for task in tasks if task[0] == load)
        rows.append([load.name, f"{scale:.0f}", *row[1:]])
    results.table("figure_14", ["workload", "requests/s"] + [Choice(*kind).name for kind in FIGURE_14], rows)


def commands(study):
    options = command_of_a_row(study.planner.scene)
    return ["scripts/experiments --only throughput",
            f"loads: gpulet schedule {options} --scenarios LADDER --json, and",
            f"gpulet simulate {options} --scenarios LADDER --seconds {SECONDS} --seed SEED --json"]


def run(measured, runner, results, quick):
    workloads = WORKLOADS[:1] if quick else WORKLOADS
    study = Study(measured, SEEDS[:1] if quick else SEEDS)
    kinds = [pair for pair in KINDS if measured.has_pairs or pair[1] == "none"]
    tasks = [(load, Choice(policy, kind, papers)) for load in workloads for papers in (True, False)
             for policy, kind in kinds]
    outcomes = list(zip(tasks, runner.map(NAME, study.measure, tasks, lambda task: 5 + task[1].weight / 20)))
    results.csv("throughput.csv", commands(study),
                ["workload", "stands_for", "policy", "interference", "setting", "highest_schedulable_per_s"] +
                [f"kept_per_s_seed_{seed}" for seed in study.seeds] + ["first_over_1_percent_per_s"],
                [[load.name, load.stands_for, choice.policy, choice.interference, choice.setting, highest, *kept, over]
                 for (load, choice), (highest, kept, over) in outcomes])
    draw(results, tables(results, outcomes, workloads), workloads)
    if measured.has_pairs:
        figure_14(study, runner, results, outcomes, workloads)
