"""Throughput within the SLO: gpulet figures 13 and 14, gpu-let figures 12 and 13."""
import statistics

import ladder
import pictures
import verdicts
from choices import Choice, command_of_a_row
from program import NOISE, Planner
from workloads import GPULET, GPU_LET, MODELS, WORKLOADS

NAME = "throughput"
DEVICES = 4
SECONDS = 20
SEEDS = (1, 2, 3)          # as in the papers: the median of three runs
MOST_VIOLATIONS = 0.01
RUNGS = 8                  # of each of the two ladders below the highest schedulable load
SETTINGS = ("published", "shipped", "defaults")
# The published algorithm beside its baselines, and ours.
BASELINES = (("sbp", "none"), ("greedy-best-fit", "none"), ("guided-self-tuning", "none"))
PUBLISHED = (("elastic-published", "none"), ("elastic-published", "linear"))
KINDS = {"published": (*BASELINES, *PUBLISHED), "shipped": (*BASELINES, *PUBLISHED, ("elastic", "linear")),
         "defaults": (*BASELINES, ("elastic", "linear"), ("elastic", "learned"), ("cover", "learned"))}
# The means of a paper are those of its own workloads, without the applications: here they are independent models.
MEANS = (("scen1 to scen5", GPULET), ("gpu-let's three", GPU_LET))
# What gpulet figure 13 and gpu-let figure 12 report: how much more elastic partitioning with interference serves.
PAPERS_GAIN = {"sbp": 0.617, "greedy-best-fit": 0.812, "elastic-published": 0.075}
# For figure 14: violations at the highest load that one of the two considers schedulable.
FIGURE_14 = (("elastic-published", "none"), ("elastic-published", "linear"), ("elastic", "learned"))
SETTING_14 = "shipped"


class Study:
    def __init__(self, measured, seeds):
        self.measured, self.seeds = measured, seeds
        self.models = MODELS
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


def geometric_mean(median, choice, workloads):
    return statistics.geometric_mean(max(median[load.name, choice], 1) for load in workloads)


def tables(results, outcomes, workloads):
    median = {(load.name, choice): statistics.median(kept) for (load, choice), (_, kept, _) in outcomes}
    means = [(name, loads) for name, loads in MEANS if all(load in workloads for load in loads)]
    for setting in SETTINGS:
        choices = [Choice(policy, kind, setting) for policy, kind in KINDS[setting]]
        present = [choice for choice in choices if (workloads[0].name, choice) in median]
        rows = [[load.name] + [f"{median[load.name, choice]:.0f}" for choice in present] for load in workloads]
        for name, loads in means:
            of_choices = [geometric_mean(median, choice, loads) for choice in present]
            rows.append([f"**geometric mean of {name}**"] + [f"**{mean:.0f}**" for mean in of_choices])
            rows.append(["beside `sbp`"] + [f"{100 * mean / of_choices[0] - 100:+.1f} %" for mean in of_choices])
        results.table(f"throughput_{setting}", ["workload"] + [f"`{choice.name}`" for choice in present], rows)
    return median


def claims(results, median):
    """gpulet's claims about figure 13, in the setting of the authors' code and with our defaults."""
    rows = []
    for setting, ours in (("shipped", Choice("elastic-published", "linear", "shipped")),
                          ("defaults", Choice("elastic", "learned", "defaults"))):
        mean = geometric_mean(median, ours, GPULET)
        for policy, papers in PAPERS_GAIN.items():
            if policy == "elastic-published" and setting == "defaults":
                continue
            gain = mean / geometric_mean(median, Choice(policy, "none", setting), GPULET) - 1
            what = "without interference" if policy == ours.policy else f"`{policy}`"
            rows.append([f"`{ours.name}` serves more than {what} (gpulet figure 13; setting {setting})",
                         f"{100 * papers:+.1f} %", f"{100 * gain:+.1f} %", verdicts.more(gain, papers), NAME])
    results.claims("claims-throughput", rows)


def draw(results, median, workloads):
    drawing, axes = pictures.figure(len(SETTINGS), 1, width=10, height=2.7 * len(SETTINGS), sharex=True, sharey=True)
    for plot, setting in zip(axes, SETTINGS):
        choices = [choice for choice in (Choice(policy, kind, setting) for policy, kind in KINDS[setting])
                   if (workloads[0].name, choice) in median]
        values = {choice.name: [median[load.name, choice] for load in workloads] for choice in choices}
        pictures.grouped_bars(plot, [load.name for load in workloads], list(values), values)
        plot.set_title(setting)
        plot.set_ylabel("requests/s within SLO")
        plot.legend(loc="center left", bbox_to_anchor=(1, 0.5), fontsize=8)
    pictures.save(drawing, results.plot("throughput"))


def figure_14(study, runner, results, outcomes, workloads):
    """Violations at the highest load that the published algorithm schedules, with or without interference."""
    highest = {(load.name, choice): top for (load, choice), (top, _, _) in outcomes}
    tasks = []
    for load in workloads:
        tops = [highest[load.name, Choice("elastic-published", kind, SETTING_14)] for kind in ("none", "linear")]
        tasks += [(load, Choice(policy, kind, SETTING_14), max(tops), seed) for policy, kind in FIGURE_14
                  for seed in study.seeds]
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
            parts = [part for task, part in by_task.items() if task[0] == load and task[1] == Choice(policy, kind, SETTING_14)]
            row.append("N" if parts[0] is None else f"{100 * statistics.median(parts):.2f} %")
        scale = next(task[2] for task in tasks if task[0] == load)
        rows.append([load.name, f"{scale:.0f}", *row[1:]])
    results.table("figure_14", ["workload", "requests/s"] + [Choice(*kind).name for kind in FIGURE_14], rows)


def commands(study):
    options = command_of_a_row(study.planner.scene)
    return ["scripts/experiments --only throughput",
            f"loads: gpulet schedule {options} --scenarios LADDER --json, and",
            f"gpulet simulate {options} --scenarios LADDER --seconds {SECONDS} --seed SEED --noise {NOISE} --json"]


def run(measured, runner, results, quick):
    measured = measured.papers_models()
    if measured is None:
        print("    throughput: skipped; these measurements lack models of the papers' workloads", flush=True)
        return
    workloads = WORKLOADS[:1] if quick else WORKLOADS
    study = Study(measured, SEEDS[:1] if quick else SEEDS)
    tasks = [(load, Choice(policy, kind, setting)) for load in workloads for setting in SETTINGS
             for policy, kind in KINDS[setting]]
    outcomes = list(zip(tasks, runner.map(NAME, study.measure, tasks, lambda task: 5 + task[1].weight / 20)))
    results.csv("throughput.csv", commands(study),
                ["workload", "source", "policy", "interference", "setting", "highest_schedulable_per_s"] +
                [f"kept_per_s_seed_{seed}" for seed in study.seeds] + ["first_over_1_percent_per_s"],
                [[load.name, load.source, choice.policy, choice.interference, choice.setting, highest, *kept, over]
                 for (load, choice), (highest, kept, over) in outcomes])
    median = tables(results, outcomes, workloads)
    draw(results, median, workloads)
    if not quick:
        claims(results, median)
    figure_14(study, runner, results, outcomes, workloads)
