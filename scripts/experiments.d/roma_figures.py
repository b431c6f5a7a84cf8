"""The figures of the study roma: averages over seeds, the tables beside the paper's, and the plot of figure 2."""
from statistics import fmean

import pictures
from roma_setup import PAPER, SECONDS, SLO_MS, STEP_S, TESTS, number_of

WINDOW_S = 10  # the paper's counts of violations are multiples of ten
COLOURS = {"skylines": "#3182bd", "googlenet": "#31a354", "resnet": "#d95f0e", "vgg16": "#756bb1"}
DRAWN = ("ROMA", "RR+rules")


def values_of(run):
    """One run in the order of Outcomes.COLUMNS."""
    tens, ones = run.figures(WINDOW_S), run.figures(1)
    return [tens["mean_s"], tens["most_s"], tens["deviation_s"], tens["violations"], ones["violations"], ones["most_s"],
            run.core_s(), run.gpu_part()]


class Outcomes:
    """The runs of several systems: {(test, system, seed): Run}. Averages are over the seeds."""
    COLUMNS = ("mean_s", "most_s_of_tens", "deviation_s_of_tens", "violations_by_tens", "violations_by_seconds",
               "most_s_of_seconds", "core_seconds", "gpu_part")

    def __init__(self, runs, seeds):
        self.runs, self.seeds = runs, seeds
        self.values = {key: dict(zip(self.COLUMNS, values_of(run))) for key, run in runs.items()}

    def of(self, test, system):
        return [self.runs[test, system, seed] for seed in self.seeds]

    def mean(self, test, system, column):
        return fmean(self.values[test, system, seed][column] for seed in self.seeds)

    def means(self, test, system):
        return [self.mean(test, system, column) for column in self.COLUMNS]

    def violations(self, test, system, window_s):
        return self.mean(test, system, "violations_by_tens" if window_s == WINDOW_S else "violations_by_seconds")

    def each(self, test, system, column):
        """The values of the seeds."""
        return " ".join(f"{self.values[test, system, seed][column]:.0f}" for seed in self.seeds)


def paper_of(test, system):
    """The row of table 2; a variant of a system stands beside that system's."""
    return PAPER[test, system.split(",")[0]]


def table_two(results, name, outcomes, systems, others):
    """The rows of systems beside the paper's. `others`: with other plants, whose range of violations and core-seconds is
    shown if there are any."""
    columns = ["test, system", "mean s", "paper", "most s", "paper", "deviation s", "paper", "violations", "paper",
               "by seconds", "core-seconds", "paper", "on GPU"]
    columns += ["violations, other plants", "core-seconds, other plants"] if others else []
    rows = []
    for test in TESTS:
        for system in systems:
            paper = paper_of(test, system)
            value = dict(zip(Outcomes.COLUMNS, outcomes.means(test, system)))
            row = [f"{test}, {system}", f"{value['mean_s']:.3f}", f"{paper.mean_s:.3f}", f"{value['most_s_of_tens']:.3f}",
                   f"{paper.most_s:.3f}", f"{value['deviation_s_of_tens']:.3f}", f"{paper.deviation_s:.3f}",
                   outcomes.each(test, system, "violations_by_tens"), paper.violations,
                   outcomes.each(test, system, "violations_by_seconds"), f"{value['core_seconds']:.0f}", paper.core_s,
                   f"{100 * value['gpu_part']:.0f} %"]
            if others:
                row += [", ".join(f"{other.violations(test, system, WINDOW_S):.0f}" for other in others),
                        ", ".join(f"{other.mean(test, system, 'core_seconds'):.0f}" for other in others)]
            rows.append(row)
    results.table(name, columns, rows)


def fit_tables(results, plants, outcomes, systems):
    """The fitted plants, and how well they repeat the rows that they were fitted to."""
    results.table("roma-plants", ["plant", "requests of a CPU at a time", "floor s", *(f"{model}, GPU ms" for model in SLO_MS),
                                  *(f"{model}, core-seconds" for model in SLO_MS)],
                  [[number, plant.requests_at_once, f"{plant.floor_s:g}", *(f"{plant.gpu_ms[model]:g}" for model in SLO_MS),
                    *(f"{plant.core_s[model]:g}" for model in SLO_MS)] for number, plant in enumerate(plants, start=1)])
    rows = []
    for test in TESTS:
        for system in systems:
            paper = PAPER[test, system]
            for number, one in enumerate(outcomes, start=1):
                value = dict(zip(one.COLUMNS, one.means(test, system)))
                rows.append([f"{test}, {system}, plant {number}", f"{value['mean_s']:.3f}", f"{paper.mean_s:.3f}",
                             f"{value['most_s_of_tens']:.3f}", f"{paper.most_s:.3f}",
                             one.each(test, system, "violations_by_tens"), paper.violations,
                             one.each(test, system, "violations_by_seconds")])
    results.table("roma-fitted", ["test, system", "mean s", "paper", "most s", "paper", "violations", "paper",
                                  "by seconds"], rows)


def draw(results, outcomes, seed):
    """Figure 2: response times with the objectives, and the granted cores."""
    test = "AllApps"
    drawing, plots = pictures.figure(3, 2, width=9, height=6, sharex=True, sharey="row")
    for column, system in enumerate(DRAWN):
        run = outcomes.runs[test, system, seed]
        times = [float(row["time_s"]) for row in run.series]
        for model, rates in TESTS[test].items():
            colour = COLOURS[model]
            plots[0][column].step([*(STEP_S * step for step in range(len(rates))), SECONDS], [*rates, rates[-1]],
                                  where="post", color=colour, linewidth=1.2, label=model)
            plots[1][column].plot(times, [run.floor_ms + float(row[f"{model} response_ms"]) for row in run.series],
                                  color=colour, linewidth=1)
            plots[1][column].axhline(SLO_MS[model], color=colour, linewidth=0.7, linestyle=":")
            plots[2][column].plot(times, [float(row[f"{model} cores"]) for row in run.series], color=colour, linewidth=1)
        plots[0][column].set_title(system)
        plots[1][column].set_yscale("log")
        plots[2][column].set_xlabel("time, s")
    for row, label in zip(plots, ("requests/s", "response time, ms", "cores, both nodes")):
        row[0].set_ylabel(label)
    plots[0][1].legend(loc="center left", bbox_to_anchor=(1, 0.5), fontsize=8)
    pictures.save(drawing, results.plot("roma_all_apps"))


def cantelli(mean, deviation, threshold):
    """The least part of values above a threshold that is below their mean, whatever their distribution."""
    distance = mean - threshold
    return distance ** 2 / (distance ** 2 + deviation ** 2)


def impossible_deviation(results):
    """Table 2's standard deviation cannot be that of the values whose violations it counts."""
    test, system = "2-Apps (ResNet, VGG16)", "RR+min"
    row = PAPER[test, system]
    least = cantelli(row.mean_s, row.deviation_s, max(SLO_MS[model] for model in TESTS[test]) / 1000)
    seconds = SECONDS * len(TESTS[test])
    results.value("roma-cantelli", f"{100 * least:.0f} %")
    results.value("roma-cantelli-s", f"{least * seconds:.0f} of {seconds} s")
    results.value("roma-cantelli-counted", f"{row.violations} s, {100 * row.violations / seconds:.0f} %")


def counting_is_consistent():
    """The tests of the paper's way of counting: a row has violations only if its largest mean is above the smallest
    objective of the test, and has none only if that is not above the largest one."""
    held = 0
    for (test, _), row in PAPER.items():
        objectives = [SLO_MS[model] / 1000 for model in TESTS[test]]
        held += row.most_s > min(objectives) if row.violations else row.most_s <= max(objectives)
    return held, len(PAPER)


__all__ = ["Outcomes", "WINDOW_S", "counting_is_consistent", "draw", "fit_tables", "impossible_deviation", "number_of",
           "table_two", "values_of"]
