"""Throughput within the SLO by data, algorithm and baseline: gpulet figures 6, 13, 15, gpu-let figures 12 and 14."""
import itertools
from dataclasses import dataclass

import data_sets
import waves
from choices import Choice, command_of_a_row
from data_sets import FIVE, RECONSTRUCTED
from measurements import Measurements
from program import NOISE
from stand_ins import EAGER
from throughput import PAPERS_GAIN, SECONDS, SEEDS, Study, gain
from workloads import APPLICATIONS, GPULET, GPU_LET, MODELS, Workload

NAME = "by_data"
H200 = "H200"
H200_FOLDER = "profiles/h200"
# Of each, the highest load that keeps 99 % of the requests within their SLO, on four devices.
PROGRAM = tuple(Choice(policy, kind, "shipped") for policy, kind in (
    ("sbp-shipped", "none"), ("greedy-best-fit", "none"), ("elastic-published", "linear"), ("elastic-shipped", "none"),
    ("elastic-shipped", "linear")))
DEFAULTS = tuple(Choice(policy, kind, "defaults") for policy, kind in (
    ("sbp", "none"), ("static-equal", "none"), ("elastic", "learned")))
PREPRINT = tuple(Choice("elastic-preprint-published", kind, "shipped") for kind in ("none", "linear"))
PROGRAM_LINEAR, DEFAULT = PROGRAM[-1], DEFAULTS[-1]
# gpulet figure 6: two models on two GPUs, at equal rates; SBP, greedy best fit and the static ideal.
PAIRED = tuple(Choice(policy, "none", "shipped") for policy in ("sbp-shipped", "greedy-best-fit", "ideal-published"))
PAIRS = "pairs of models"
PAPERS_SPATIAL, PAPERS_IDEAL = 0.51, 0.23
NOT_IN_THE_PAPER = "not in the paper"


class RaisingChoice(Choice):
    """Of a policy that raises the rates itself: the setting *shipped* for rates that only a simulation knows."""

    def flags(self):
        return ["--policy", self.policy, "--interference", self.interference, "--margin", "1.1"]


WAVES = (RaisingChoice("elastic-shipped", "linear", "shipped"), Choice("elastic", "learned", "defaults"))


@dataclass(frozen=True)
class Data:
    """Measurements with the workloads that are tried on them."""
    name: str
    study: Study
    workloads: tuple
    choices: tuple


def h200(measured):
    made = Measurements(H200_FOLDER, measured.gpulet, measured.work / "h200")
    made.scales_rates = False
    made.import_profiles()
    return made


def all_data(measured, seeds):
    papers = measured.papers_models()
    rebuilt = data_sets.reconstructed(measured)
    modern = h200(measured)
    five = tuple(sorted(modern.latency))
    pairs = tuple(Workload(f"{a} and {b}", tuple(1 if model in (a, b) else 0 for model in MODELS), "gpulet figure 6")
                  for a, b in itertools.combinations(FIVE, 2))
    loads = (*GPULET, *APPLICATIONS, *GPU_LET)
    return (Data(RECONSTRUCTED, Study(rebuilt, seeds), loads, (*PROGRAM, *PREPRINT, *DEFAULTS)),
            Data(EAGER, Study(papers, seeds), loads, (*PROGRAM, *DEFAULTS)),
            Data(H200, Study(modern, seeds, five), (Workload("equal", (1,) * len(five), "five models"),), DEFAULTS),
            Data(PAIRS, Study(rebuilt, seeds[:1], MODELS, 2), pairs, PAIRED))


def own_workloads(data, choice):
    """Those of the paper that the choice comes from, as its mean has them."""
    if data.name not in (RECONSTRUCTED, EAGER):
        return data.workloads
    return GPU_LET if choice in PREPRINT else (*GPULET, *APPLICATIONS)


def throughput_table(results, every, kept):
    for data in every:
        rows = []
        for load in data.workloads:
            cells = []
            for choice in data.choices:
                of_seeds = [f"{rate:.0f}" for rate in kept[data.name][load.name, choice]]
                cells.append(of_seeds[0] if len(set(of_seeds)) == 1 else f"{min(of_seeds, key=int)} to {max(of_seeds, key=int)}")
            rows.append([load.name, *cells])
        name = data.name.replace(", ", "_").replace(" ", "_")
        results.table(f"by_data_{name}", ["workload", *(f"`{choice.name}`" for choice in data.choices)], rows)


def beside_text(choice, other):
    return "without interference" if choice.policy == other.policy else f"`{other.name}`"


def paper_text(paper):
    if paper is None:
        return "not compared"
    return f"{100 * paper:+.1f} %" + (": nearly as much" if paper < 0 else "")


def throughput_claims(every, kept):
    """The first rows are the headline: the authors' program beside its own baselines, on their GPU."""
    of = {data.name: data for data in every}
    papers = {"sbp-shipped": 0.617, "greedy-best-fit": 0.812, "elastic-shipped": 0.075}
    compared = [(name, PROGRAM_LINEAR, other, papers[other.policy], "gpulet figure 13")
                for name in (RECONSTRUCTED, EAGER) for other in (PROGRAM[0], PROGRAM[1], PROGRAM[3])]
    compared += [(RECONSTRUCTED, PREPRINT[1], other, PAPERS_GAIN["elastic-preprint"][key], "gpu-let figure 12")
                 for key, other in (("sbp", PROGRAM[0]), ("elastic-preprint", PREPRINT[0]))]
    compared += [(name, DEFAULT, other, None if other.policy == "static-equal" else 0.617,
                  "gpulet figure 13 with our default algorithm")
                 for name, others in ((RECONSTRUCTED, (PROGRAM[0], *DEFAULTS[:2])), (EAGER, (PROGRAM[0], *DEFAULTS[:2])),
                                      (H200, DEFAULTS[:2])) for other in others]
    rows = []
    for name, choice, other, paper, figure in compared:
        found = gain(kept[name], choice, other, own_workloads(of[name], choice))
        rows.append([f"`{choice.name}` keeps the SLO at higher rates ({figure})", paper_text(paper), found.text, name,
                     beside_text(choice, other), NOT_IN_THE_PAPER if paper is None else found.verdict(paper), NAME])
    temporal, spatial, ideal = PAIRED
    for choice, other, paper, what in ((spatial, temporal, PAPERS_SPATIAL, "spatial sharing serves more than temporal"),
                                       (ideal, spatial, PAPERS_IDEAL, "the best static division serves more than spatial")):
        found = gain(kept[PAIRS], choice, other, of[PAIRS].workloads)
        rows.append([f"two models on two GPUs: {what} (gpulet figure 6)", f"{100 * paper:+.0f} %", found.text, RECONSTRUCTED,
                     f"`{other.name}`", found.verdict(paper), NAME])
    return rows


def waves_rows(results, case, outcomes):
    """gpulet figure 15 and gpu-let figure 14: rows of the table and of the claims."""
    rows, made = [], []
    for choice, (out, series) in outcomes:
        seen = waves.summary(out, series)
        rows.append([f"`{choice.name}`", f"{100 * seen['violation']:.3f} %", f"{seen['over']} of {seen['steps']}",
                     f"{seen['devices']:.2f}", seen["most"], f"{seen['share']:.0f} %", seen["plans"]])
        made.append([f"`{choice.name}` keeps violations below 1 % in every period of {waves.STEP_S} s (gpulet figure 15)",
                     "every period", f"{seen['steps'] - seen['over']} of {seen['steps']}", RECONSTRUCTED, "–",
                     waves.verdict(seen["over"], seen["steps"]), NAME])
    results.table("by_data_waves", ["policy", "violations", f"periods of {waves.STEP_S} s over 1 %", "devices, mean", "most",
                                    "shares, mean", "plans made"], rows)
    waves.draw(results, case, [((case, waves.Run(choice)), outcome) for choice, outcome in outcomes])
    return made


def run(measured, runner, results, quick):
    seeds = SEEDS[:1] if quick else SEEDS
    every = all_data(measured, seeds)
    tasks = [(data, load, choice) for data in every for load in (data.workloads[:1] if quick else data.workloads)
             for choice in (data.choices[::3] if quick else data.choices)]
    outcomes = list(zip(tasks, runner.map(NAME, lambda task: task[0].study.measure(task[1:]), tasks,
                                          lambda task: 5 + task[2].weight / 20)))
    options = command_of_a_row(every[0].study.planner.scene)
    results.csv("by_data.csv",
                ["scripts/experiments --only by_data",
                 f"loads: gpulet simulate {options} --scenarios LADDER --seconds {SECONDS} --seed SEED --noise {NOISE} --json"],
                ["data", "workload", "policy", "interference", "setting", "highest_schedulable_per_s",
                 *(f"kept_per_s_seed_{seed}" for seed in SEEDS)],
                [[data.name, load.name, choice.policy, choice.interference, choice.setting, highest, *kept,
                  *[""] * (len(SEEDS) - len(kept))] for (data, load, choice), (highest, _, kept) in outcomes])
    seconds = 100 if quick else waves.SECONDS
    case = waves.Case(data_sets.reconstructed(measured), "scen3", waves.PAPERS_MODELS, seconds, "waves_reconstructed")
    seen = list(zip(WAVES, runner.map(f"{NAME}, waves", lambda choice: case.run(waves.Run(choice)), WAVES)))
    results.csv("by_data_waves.csv",
                ["scripts/experiments --only by_data",
                 f"gpulet simulate --cluster {case.planner.scene.cluster} --profiles {case.planner.scene.profiles} --demand "
                 f"{case.planner.scene.demand} --policy POLICY --interference INTERFERENCE --trace {case.trace} --seconds "
                 f"{seconds} --seed {waves.SEED} --noise {NOISE} [elastic-shipped: --margin 1.1] --json"],
                ["policy", "interference", "time_s", "devices", "share_percent", "offered", "violations"],
                [[choice.policy, choice.interference, *(row[name] for name in (
                    "time_s", "devices", "share_percent", "offered", "violations"))]
                 for choice, (_, series) in seen for row in series])
    if quick:
        return
    kept = {data.name: {(load.name, choice): found for (of, load, choice), (_, _, found) in outcomes if of is data}
            for data in every}
    throughput_table(results, every, kept)
    results.claims("claims-by-data", throughput_claims(every, kept) + waves_rows(results, case, seen))
