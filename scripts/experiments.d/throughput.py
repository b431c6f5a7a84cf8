"""Throughput within the SLO: gpulet figures 13 and 14, gpu-let figures 12 and 13."""
import statistics
from dataclasses import dataclass

import applications
import ladder
import pictures
import verdicts
from choices import Choice, command_of_a_row
from program import NOISE, Planner
from stand_ins import EAGER
from workloads import GPULET, GPU_LET, MODELS, WORKLOADS

NAME = "throughput"
DEVICES = 4
SECONDS = 20
SEEDS = (1, 2, 3)          # as in the papers: the median of three runs
MOST_VIOLATIONS = 0.01
NEAR_ZERO = 0.1            # a baseline that keeps less than this part of what it is compared with says nothing
RUNGS = 8                  # below the highest schedulable load, and of each of them: results are to a sixty-fourth of it
SETTINGS = ("published", "shipped", "defaults")
# The published algorithm beside its baselines, and ours.
BASELINES = (("sbp", "none"), ("greedy-best-fit", "none"), ("guided-self-tuning", "none"), ("static-equal", "none"))
PUBLISHED = (("elastic-published", "none"), ("elastic-published", "linear"))
PREPRINT = (("elastic-preprint", "none"), ("elastic-preprint", "linear"))
KINDS = {"published": (*BASELINES, *PUBLISHED),
         "shipped": (*BASELINES, *PUBLISHED, *PREPRINT, ("elastic", "linear")),
         "defaults": (*BASELINES, ("elastic", "linear"), ("elastic", "learned"), ("cover", "learned"))}
# The means of a paper are those of its own workloads, without the applications: a request of theirs calls several models.
MEANS = (("scen1 to scen5", GPULET), ("gpu-let's three", GPU_LET))
# How much more elastic partitioning with interference serves: gpulet figure 13 and gpu-let figure 12.
PAPERS_GAIN = {"elastic-published": {"sbp": 0.617, "greedy-best-fit": 0.812, "elastic-published": 0.075},
               "elastic-preprint": {"sbp": 1.026, "elastic-preprint": -0.034}}
PAPERS_OWN = {"elastic-published": GPULET, "elastic-preprint": GPU_LET}
FIGURES = {"elastic-published": "gpulet figure 13", "elastic-preprint": "gpu-let figure 12"}
# For figure 14: violations at the highest load that one of the two considers schedulable.
FIGURE_14 = (("elastic-published", "none"), ("elastic-published", "linear"), ("elastic", "learned"))
SETTING_14 = "shipped"


class Study:
    """Of the models of the papers' workloads, or of others without applications."""

    def __init__(self, measured, seeds, models=MODELS, devices=DEVICES):
        self.measured, self.seeds, self.models = measured, seeds, models
        self.planner = Planner(measured.gpulet, measured.scene(f"workloads-{devices}", models, devices))
        of_applications = applications.APPLICATIONS if models == MODELS else {}
        self.planner_of_application = {
            name: Planner(measured.gpulet, applications.scene(measured, one, devices))
            for name, one in of_applications.items()}

    def planner_of(self, workload):
        return self.planner_of_application.get(workload.name, self.planner)

    def file(self, name, asked):
        """The rates of one workload: requests to models or, of an application, to the application."""
        workload = asked[0][0]
        application = applications.APPLICATIONS.get(workload.name) if self.models == MODELS else None
        if application:
            return applications.scenarios(self.measured, f"{NAME}/{name}", application, [scale for _, scale in asked])
        return self.measured.scenarios(f"{NAME}/{name}", self.models, [load.at(scale) for load, scale in asked])

    def schedulable(self, workload, choice):
        name = f"{workload.name}-{choice.name}-{choice.setting}"
        return ladder.highest_scales([workload], lambda asked: self.planner_of(workload).schedule_scenarios(
            choice, self.file(name, asked))["rows"])[0]

    def violations(self, workload, choice, scales, seed):
        """The fraction of requests that are late or dropped at each scale; None if no plan serves that load."""
        name = f"{workload.name}-{choice.name}-{choice.setting}-{seed}"
        file = self.file(name, [(workload, scale) for scale in scales])
        rows = self.planner_of(workload).simulate_scenarios(choice, file, SECONDS, seed)["rows"]
        return [row.get("violation") for row in rows]

    def limits(self, workload, choice, highest, seed):
        """(raised, kept): the load below the first that misses its SLO, as the papers raise the rates until one does, and
        the highest load that keeps it.

        They differ where loads between them miss it: a plan for less load uses fewer devices, and may be the tighter one.
        """
        if not highest:
            return 0.0, 0.0
        last = RUNGS * RUNGS
        good = self.good(workload, choice, highest, seed, range(RUNGS, last + 1, RUNGS))
        first_over = next((rung for rung, holds in good.items() if not holds), None)
        best = max((rung for rung, holds in good.items() if holds), default=0)
        fine = set(range(best + 1, min(best + RUNGS, last)))
        if first_over:
            fine |= set(range(first_over - RUNGS + 1, first_over))
        if fine:
            good |= self.good(workload, choice, highest, seed, sorted(fine))
        raised = last
        if first_over:
            rungs = range(first_over - RUNGS + 1, first_over + 1)
            raised = ladder.below_first_failure(first_over - RUNGS, rungs, [good[rung] for rung in rungs])
        kept = max((rung for rung, holds in good.items() if holds), default=0)
        return highest * raised / last, highest * kept / last

    def good(self, workload, choice, highest, seed, rungs):
        """{rung: whether its load keeps 99 % of the requests within their SLO}"""
        seen = self.violations(workload, choice, [highest * rung / RUNGS**2 for rung in rungs], seed)
        return {rung: part is not None and part <= MOST_VIOLATIONS for rung, part in zip(rungs, seen)}

    def measure(self, task):
        workload, choice = task
        highest = self.schedulable(workload, choice)
        found = [self.limits(workload, choice, highest, seed) for seed in self.seeds]
        return highest, [raised for raised, _ in found], [kept for _, kept in found]


class Medians:
    """Of the seeds, by workload and choice."""

    def __init__(self, outcomes):
        self.raised = {(load.name, choice): statistics.median(raised) for (load, choice), (_, raised, _) in outcomes}
        self.kept = {(load.name, choice): statistics.median(kept) for (load, choice), (_, _, kept) in outcomes}


def geometric_mean(median, choice, workloads):
    return statistics.geometric_mean(max(median[load.name, choice], 1) for load in workloads)


def tables(results, medians, workloads):
    means = [(name, loads) for name, loads in MEANS if all(load in workloads for load in loads)]
    for setting in SETTINGS:
        choices = [Choice(policy, kind, setting) for policy, kind in KINDS[setting]]
        rows = [[load.name] + [f"{medians.raised[load.name, choice]:.0f}" for choice in choices] for load in workloads]
        for name, loads in means:
            for of, median in ((name, medians.raised), (f"{name}, highest that keeps it", medians.kept)):
                of_choices = [geometric_mean(median, choice, loads) for choice in choices]
                rows.append([f"**geometric mean of {of}**"] + [f"**{mean:.0f}**" for mean in of_choices])
                rows.append(["beside `sbp`"] + [f"{100 * mean / of_choices[0] - 100:+.1f} %" for mean in of_choices])
        results.table(f"throughput_{setting}", ["workload"] + [f"`{choice.name}`" for choice in choices], rows)


@dataclass(frozen=True)
class Gain:
    """How much more one choice keeps than another: the ratio of geometric means less 1, of each seed."""
    by_seed: tuple  # empty: the baseline keeps next to nothing of any workload
    left_out: tuple = ()  # names of the workloads of which it does

    @property
    def text(self):
        if not self.by_seed:
            return "the baseline keeps next to nothing"
        texts = sorted({f"{100 * gain:+.1f} %" for gain in (min(self.by_seed), max(self.by_seed))},
                       key=lambda text: float(text.split()[0]))
        return " to ".join(texts) + (f" without {', '.join(self.left_out)}, of which the baseline keeps next to nothing"
                                     if self.left_out else "")

    def verdict(self, papers):
        """By the seed that speaks least for the claim."""
        if not self.by_seed:
            return verdicts.NOT_TESTABLE
        return verdicts.more(min(self.by_seed), papers, min(0, 2 * papers))


def gain(kept, choice, other, workloads):
    """kept: {(workload's name, choice): the highest load that keeps the SLO, by seed}"""
    counted = [load.name for load in workloads
               if min(kept[load.name, other]) > max(0, NEAR_ZERO * statistics.median(kept[load.name, choice]))]
    if not counted:
        return Gain(())

    def mean(one, seed):
        return statistics.geometric_mean(max(kept[name, one][seed], 1) for name in counted)

    seeds = range(len(kept[counted[0], other]))
    return Gain(tuple(mean(choice, seed) / mean(other, seed) - 1 for seed in seeds),
                tuple(load.name for load in workloads if load.name not in counted))


def claims(results, kept):
    """The papers' claims with their algorithms in the setting of the authors' code, and with our defaults."""
    rows = []
    for ours, setting, gains in (("elastic-published", "shipped", PAPERS_GAIN["elastic-published"]),
                                 ("elastic-preprint", "shipped", PAPERS_GAIN["elastic-preprint"]),
                                 ("elastic", "defaults", PAPERS_GAIN["elastic-published"])):
        choice = Choice(ours, "learned" if setting == "defaults" else "linear", setting)
        own = PAPERS_OWN.get(ours, GPULET)
        for policy, papers in gains.items():
            if setting == "defaults" and policy == "elastic-published":
                continue
            found = gain(kept, choice, Choice(policy, "none", setting), own)
            beside = "without interference" if policy == ours else f"`{policy}`"
            rows.append([f"`{choice.name}` keeps the SLO at higher rates ({FIGURES.get(ours, FIGURES['elastic-published'])}; "
                         f"setting {setting})", f"{100 * papers:+.1f} %", found.text, EAGER, beside, found.verdict(papers),
                         NAME])
    results.claims("claims-throughput", rows)
    default, greedy = (Choice(policy, kind, "defaults") for policy, kind in (("elastic", "learned"), BASELINES[1]))
    results.value("greedy-beside-default-kept", gain(kept, greedy, default, GPULET).text)


def draw(results, median, workloads):
    drawing, axes = pictures.figure(len(SETTINGS), 1, width=10, height=2.7 * len(SETTINGS), sharex=True, sharey=True)
    for plot, setting in zip(axes, SETTINGS):
        choices = [Choice(policy, kind, setting) for policy, kind in KINDS[setting]]
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
            parts = [part for task, part in by_task.items()
                     if task[:2] == (load, Choice(policy, kind, SETTING_14))]
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
                [f"{what}_per_s_seed_{seed}" for what in ("raised", "kept") for seed in study.seeds],
                [[load.name, load.source, choice.policy, choice.interference, choice.setting, highest, *raised, *kept]
                 for (load, choice), (highest, raised, kept) in outcomes])
    medians = Medians(outcomes)
    tables(results, medians, workloads)
    draw(results, medians.raised, workloads)
    if not quick:
        claims(results, {(load.name, choice): kept for (load, choice), (_, _, kept) in outcomes})
    figure_14(study, runner, results, outcomes, workloads)
