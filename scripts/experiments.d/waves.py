"""Two waves of load over 3,200 s: gpulet figure 15, gpu-let figure 14."""
import csv
import math

import pictures
from choices import Choice
from measurements import NINE_MODELS, PAIRED_MODELS
from program import Planner

NAME = "waves"
DEVICES = 8
STEP_S = 20                                   # the scheduler's period, and how often the rates change
SECONDS = 3200
WAVES = ((0, 1200, 0.6), (1400, 3200, 1.0))   # from, to, height: the second one is higher, as in the paper
TROUGH = 0.12                                 # between the waves, of the highest
LAG = 0.08                                    # of a wave's length, from one model's peak to the next one's
# The highest rate of all models together, chosen so that the second wave needs seven or eight devices.
PEAKS = {"nine": 6500, "paired": 8500}
CHOICES = (("sbp", "none"), ("elastic", "none"), ("elastic", "learned"), ("cover", "learned"))
SEED = 1


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

    def __init__(self, measured, name, models, seconds):
        self.measured, self.name, self.models, self.seconds = measured, name, models, seconds
        self.steps = rates(models, PEAKS[name], seconds)
        lines = ["time_s,model,rate"] + [f"{time_s},{model},{rate * measured.unit_rate(model):.3f}"
                                         for time_s, row in self.steps for model, rate in row.items()]
        self.trace = measured.write(f"{NAME}/{name}.csv", "\n".join(lines) + "\n")
        first = {model: round(rate * measured.unit_rate(model), 3) for model, rate in self.steps[0][1].items()}
        self.planner = Planner(measured.gpulet, measured.scene(f"{NAME}-{name}", models, DEVICES, first))

    def run(self, choice):
        series = self.measured.write(f"{NAME}/series-{self.name}-{choice.name}.csv", "")
        out = self.planner.simulate_trace(choice, self.trace, series, self.seconds, SEED)
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
    for (_, choice), (_, series) in outcomes:
        at = [row["time_s"] for row in series]
        style = {"color": pictures.COLOURS[choice.name], "linewidth": 1.3, "label": choice.name}
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
    pictures.save(drawing, results.plot(f"waves_{case.name}"))


def run(measured, runner, results, quick):
    seconds = 100 if quick else SECONDS
    cases = [Case(measured, "nine", measured.choose(NINE_MODELS), seconds)]
    if not quick and measured.has_pairs:
        cases.append(Case(measured, "paired", measured.choose(PAIRED_MODELS), seconds))
    # A plan of cover takes seconds.
    choices = [pair for pair in CHOICES if not quick or pair[0] != "cover"]
    kinds = [pair for pair in choices if measured.has_pairs or pair[1] == "none"]
    tasks = [(case, Choice(policy, kind, False)) for case in cases for policy, kind in kinds]
    outcomes = list(zip(tasks, runner.map(NAME, lambda task: task[0].run(task[1]), tasks,
                                          lambda task: 5 + task[1].weight / 10)))
    rows = []
    for case in cases:
        of_case = [(task, outcome) for task, outcome in outcomes if task[0] is case]
        results.csv(f"waves_{case.name}.csv",
                    ["scripts/experiments --only waves",
                     f"each policy: gpulet simulate --cluster {case.planner.scene.cluster} --profiles "
                     f"{case.planner.scene.profiles} --demand {case.planner.scene.demand} --policy POLICY "
                     f"--interference INTERFERENCE --trace {case.trace} --series SERIES --seconds {seconds} "
                     f"--seed {SEED} --json"],
                    ["policy", "interference", "time_s", "devices", "share_percent", "offered", "violations"],
                    [[choice.policy, choice.interference, *(row[name] for name in (
                        "time_s", "devices", "share_percent", "offered", "violations"))]
                     for (_, choice), (_, series) in of_case for row in series])
        draw(results, case, of_case)
        for (_, choice), (out, series) in of_case:
            seen = summary(out, series)
            rows.append([f"{case.name}, `{choice.name}`", f"{100 * seen['violation']:.3f} %",
                         f"{seen['over']} of {seen['steps']}", f"{seen['devices']:.2f}", seen["most"],
                         f"{seen['share']:.0f} %", seen["plans"]])
    results.table("waves", ["models, policy", "violations", f"periods of {STEP_S} s over 1 %", "devices, mean", "most",
                            "shares, mean", "plans made"], rows)
