"""Two waves of load over 3,200 s: gpulet figure 15, gpu-let figure 14."""
import csv
import math
from dataclasses import dataclass

import pictures
import verdicts
from choices import Choice
from measurements import NINE_MODELS
from program import NOISE, Planner
from stand_ins import EAGER
from workloads import GPULET, MODELS

NAME = "waves"
DEVICES = 8
STEP_S = 20                                   # the scheduler's period, and how often the rates change
SECONDS = 3200
WAVES = ((0, 1200, 0.6), (1400, 3200, 1.0))   # from, to, height: the second one is higher, as in the paper
TROUGH = 0.12                                 # between the waves, of the highest
LAG = 0.08                                    # of a wave's length, from one model's peak to the next one's
# The highest rate of all models together, chosen so that the second wave needs seven or eight devices.
PEAKS = {"nine": 6500, "scen3": 2800}
# Not cover: its plans take seconds here, and a run has 160.
CHOICES = (("sbp", "none"), ("elastic-published", "none"), ("elastic-published", "linear"), ("elastic", "learned"))
SETTING = "defaults"
# What starts a process takes here, 0.4 s and 0.3 s for a model, and what the papers report: 10 to 15 s.
SLOW_START_MS = 12000
PAPERS_MODELS = tuple(model for model, rate in zip(MODELS, next(one for one in GPULET if one.name == "scen3").rates)
                      if rate)
SEED = 1


@dataclass(frozen=True)
class Run:
    choice: Choice
    slow_start: bool = False

    @property
    def name(self):
        return self.choice.name + (", slow start" if self.slow_start else "")


def rate_at(time_s, peak, lag):
    """A raised cosine in each wave, shifted by the model's lag."""
    height = TROUGH
    for begin, end, top in WAVES:
        at = (time_s - begin) / (end - begin) - lag
        if 0 < at < 1:
            height = max(height, TROUGH + (top - TROUGH) * (1 - math.cos(2 * math.pi * at)) / 2)
    return peak * height


def weights(models):
    """Unequal parts of the rate: no two models have the same wave."""
    raw = [1 + 0.35 * math.sin(2.4 * place) for place in range(len(models))]
    return [value / sum(raw) for value in raw]


def rates(models, peak, seconds):
    """[(time_s, {model: rate})]; a shorter run sees the same two waves in less time."""
    stretch = SECONDS / seconds
    lags = [LAG * (2 * place / (len(models) - 1) - 1) for place in range(len(models))]
    return [(step * STEP_S, {model: rate_at(step * STEP_S * stretch, peak * part, lag)
                             for model, part, lag in zip(models, weights(models), lags)})
            for step in range(int(seconds // STEP_S))]


def read_series(file):
    with open(file, encoding="utf-8", newline="") as opened:
        return [{name: float(value) for name, value in row.items()} for row in csv.DictReader(opened)]


class Case:
    """The models of one study with their trace."""

    def __init__(self, measured, name, models, seconds, plot=""):
        self.measured, self.name, self.models, self.seconds = measured, name, models, seconds
        self.plot = plot or f"{NAME}_{name}"
        self.steps = rates(models, PEAKS[name], seconds)
        lines = ["time_s,model,rate"] + [f"{time_s},{model},{rate * measured.unit_rate(model):.3f}"
                                         for time_s, row in self.steps for model, rate in row.items()]
        self.trace = measured.write(f"{NAME}/{name}.csv", "\n".join(lines) + "\n")
        first = {model: round(rate * measured.unit_rate(model), 3) for model, rate in self.steps[0][1].items()}
        self.planner = Planner(measured.gpulet, measured.scene(f"{NAME}-{name}", models, DEVICES, first))

    def run(self, run):
        series = self.measured.write(f"{NAME}/series-{self.name}-{run.name.replace(', ', '-')}.csv", "")
        more = ("--process-start-ms", SLOW_START_MS) if run.slow_start else ()
        out = self.planner.simulate_trace(run.choice, self.trace, series, self.seconds, SEED, more)
        return out, read_series(series)


def summary(out, series):
    """The table's values of a run."""
    offered = sum(row["offered"] for row in series)
    over = [row for row in series if row["offered"] and row["violations"] / row["offered"] > 0.01]
    return {"violation": sum(row["violations"] for row in series) / offered, "devices": out["devices_mean"],
            "most": out["devices_used"], "plans": out["plans"], "over": len(over), "steps": len(series),
            "share": sum(row["share_percent"] for row in series) / len(series)}


def draw(results, case, outcomes):
    """The four panels of the paper's figure, with one line per policy."""
    drawing, axes = pictures.figure(4, 1, width=9, height=8, sharex=True)
    times = [time_s for time_s, _ in case.steps]
    axes[0].stackplot(times, [[row[model] for _, row in case.steps] for model in case.models], labels=case.models,
                      colors=pictures.MODEL_COLOURS)
    axes[0].set_ylabel("load, requests/s")
    axes[0].legend(loc="center left", bbox_to_anchor=(1, 0.5), fontsize=8)
    for (_, run), (_, series) in outcomes:
        at = [row["time_s"] for row in series]
        style = {"color": pictures.COLOURS[run.choice.name], "linewidth": 1.3, "label": run.name,
                 "linestyle": ":" if run.slow_start else "-"}
        axes[1].step(at, [row["devices"] for row in series], where="post", **style)
        axes[2].step(at, [row["share_percent"] for row in series], where="post", **style)
        axes[3].plot(at, [100 * row["violations"] / max(row["offered"], 1) for row in series], **style)
    axes[1].set_ylabel("devices in use")
    axes[1].set_ylim(0, DEVICES + 0.3)
    axes[1].legend(loc="center left", bbox_to_anchor=(1, 0.5))
    axes[2].set_ylabel("sum of shares, %")
    axes[2].set_ylim(0, 100 * DEVICES + 30)
    axes[3].axhline(1, color="black", linewidth=0.8, linestyle=":")
    axes[3].set_yscale("symlog", linthresh=1)
    axes[3].set_yticks([0, 0.5, 1, 10, 100], ["0", "0.5", "1", "10", "100"])
    axes[3].set_ylim(0, None)
    axes[3].set_ylabel("violations, %")
    axes[3].set_xlabel("time, s")
    pictures.save(drawing, results.plot(case.plot))


def draw_models(results, case, outcomes, run):
    """The paper's last panel: violations of each model."""
    series = next(series for (_, one), (_, series) in outcomes if one == run)
    drawing, axes = pictures.figure(len(case.models), 1, width=9, height=1.3 * len(case.models), sharex=True, sharey=True)
    for plot, model in zip(axes, case.models):
        plot.plot([row["time_s"] for row in series],
                  [100 * row[f"{model} violations"] / max(row[f"{model} offered"], 1) for row in series],
                  color=pictures.COLOURS[run.choice.name], linewidth=1.2)
        plot.axhline(1, color="black", linewidth=0.8, linestyle=":")
        plot.set_yscale("symlog", linthresh=1)
        plot.set_yticks([0, 1, 10, 100], ["0", "1", "10", "100"])
        plot.set_ylim(0, None)
        plot.set_ylabel(f"{model}, %")
    axes[-1].set_xlabel("time, s")
    pictures.save(drawing, results.plot(f"waves_{case.name}_models"))


def verdict(over, periods):
    """The claim is about every period, so one over 1 % is enough to weaken it."""
    if not over:
        return verdicts.CONFIRMED
    return verdicts.WEAKER if over < periods / 2 else verdicts.NOT_CONFIRMED


def claims(results, of_case):
    """The paper's run is elastic with interference on scen3."""
    rows = []
    for run in (Run(Choice("elastic-published", "linear", SETTING)), Run(Choice("elastic", "learned", SETTING)),
                Run(Choice("elastic", "learned", SETTING), slow_start=True)):
        seen = summary(*next(outcome for (_, one), outcome in of_case if one == run))
        rows.append([f"`{run.name}` keeps violations below 1 % in every period of {STEP_S} s (gpulet figure 15)",
                     "every period", f"{seen['steps'] - seen['over']} of {seen['steps']}", EAGER, "–",
                     verdict(seen["over"], seen["steps"]), NAME])
    results.claims("claims-waves", rows)


def run(measured, runner, results, quick):
    seconds = 100 if quick else SECONDS
    cases = [Case(measured, "nine", measured.choose(NINE_MODELS), seconds)]
    papers = measured.papers_models()
    if not quick and papers:
        cases.append(Case(papers, "scen3", PAPERS_MODELS, seconds))
    runs = [Run(Choice(policy, kind, SETTING)) for policy, kind in CHOICES if measured.has_pairs or kind == "none"]
    tasks = [(case, one) for case in cases for one in runs]
    tasks += [(case, Run(Choice("elastic", "learned", SETTING), slow_start=True)) for case in cases if measured.has_pairs]
    outcomes = list(zip(tasks, runner.map(NAME, lambda task: task[0].run(task[1]), tasks,
                                          lambda task: 5 + task[1].choice.weight / 10)))
    rows = []
    for case in cases:
        of_case = [(task, outcome) for task, outcome in outcomes if task[0] is case]
        results.csv(f"waves_{case.name}.csv",
                    ["scripts/experiments --only waves",
                     f"each policy: gpulet simulate --cluster {case.planner.scene.cluster} --profiles "
                     f"{case.planner.scene.profiles} --demand {case.planner.scene.demand} --policy POLICY "
                     f"--interference INTERFERENCE --trace {case.trace} --series SERIES --seconds {seconds} "
                     f"--seed {SEED} --noise {NOISE} [slow start: --process-start-ms {SLOW_START_MS}] --json"],
                    ["policy", "interference", "slow_start", "time_s", "devices", "share_percent", "offered",
                     "violations"],
                    [[one.choice.policy, one.choice.interference, one.slow_start, *(row[name] for name in (
                        "time_s", "devices", "share_percent", "offered", "violations"))]
                     for (_, one), (_, series) in of_case for row in series])
        draw(results, case, of_case)
        if case.name == "scen3":
            draw_models(results, case, of_case, Run(Choice("elastic", "learned", SETTING)))
            claims(results, of_case)
        for (_, one), (out, series) in of_case:
            seen = summary(out, series)
            if not one.slow_start:
                results.value(f"devices-{case.name}-{one.choice.name}", f"{seen['devices']:.2f}")
            rows.append([f"{case.name}, `{one.choice.name}`" + (", slow start" if one.slow_start else ""),
                         f"{100 * seen['violation']:.3f} %", f"{seen['over']} of {seen['steps']}",
                         f"{seen['devices']:.2f}", seen["most"], f"{seen['share']:.0f} %", seen["plans"]])
    results.table("waves", ["models, policy", "violations", f"periods of {STEP_S} s over 1 %", "devices, mean", "most",
                            "shares, mean", "plans made"], rows)
