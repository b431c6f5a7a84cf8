"""MIG-serving's genetic algorithm and tree search against random search in the same CPU time."""
import statistics

from matplotlib import pyplot as plt
from matplotlib.ticker import NullLocator

import pictures

FAMILIES = ("few", "three-sizes", "remainders", "many", "workloads", "measured")
SEARCHES = {"random": "random", "random-best-ten": "random of the best ten", "tree": "tree search",
            "genetic-random": "genetic, random filling", "genetic": "genetic, tree search"}
COLOURS = dict(zip(SEARCHES.values(), ("#b5b5b5", "#7f7f7f", "#31a354", "#9ecae1", "#3182bd")))
WEIGHTS = {"workloads": 6, "measured": 3, "many": 2}  # relative times; the others: 1
SECONDS, SEEDS, COUNT = 0.6, 5, 2
TICKS = (0, 1, 2, 5, 10, 20, 40)  # beyond 2 the axis is logarithmic


class Task:
    """One task's rows."""

    def __init__(self, name, rows):
        self.name, self.rows = name, rows
        self.services, self.greedy, self.bound = (int(rows[0][column]) for column in ("services", "greedy", "bound"))

    def devices(self, search):
        return [int(row["devices"]) for row in self.rows if row["search"] == search]

    def mean(self, search):
        return statistics.mean(self.devices(search))

    @property
    def has_gap(self):
        return self.greedy > self.bound

    def gains(self):
        """The genetic algorithm's over greedy, in percent."""
        return [100 * (1 - devices / self.greedy) for devices in self.devices("genetic")]


def measure(setup):
    seconds, seeds, count = (0.05, 2, 1) if setup.quick else (SECONDS, SEEDS, COUNT)
    found = setup.runner.map("mig, searches", lambda family: setup.bench_csv(
        "bench_mig_search", "--tasks", family, "--seconds", seconds, "--seeds", seeds, "--count", count), FAMILIES,
                             lambda family: WEIGHTS.get(family, 1))
    rows = [row for family in found for row in family]
    setup.results.csv("mig_search.csv", ["scripts/experiments --only mig",
                                         f"bench_mig_search --tasks {'|'.join(FAMILIES)} --seconds {seconds} --seeds "
                                         f"{seeds} --count {count}",
                                         "seconds, and devices where time ends a search, depend on the machine"],
                      rows[0].keys(), [row.values() for row in rows])
    by_task = {}
    for row in rows:
        by_task.setdefault(row["task"], []).append(row)
    return [Task(name, of_task) for name, of_task in by_task.items()]


def text(values):
    deviation = statistics.stdev(values) if len(values) > 1 else 0.0
    return f"{statistics.mean(values):.1f} ± {deviation:.1f}"


def draw(setup, tasks):
    drawing, axes = pictures.figure(width=9, height=3.4)
    heights = {name: [task.mean(search) - task.bound for task in tasks] for search, name in SEARCHES.items()}
    pictures.grouped_bars(axes, [task.name for task in tasks], list(SEARCHES.values()), heights, COLOURS)
    for place, search in enumerate(SEARCHES):
        for group, task in enumerate(tasks):
            over = [devices - task.bound for devices in task.devices(search)]
            at = group + (place - (len(SEARCHES) - 1) / 2) * 0.8 / len(SEARCHES)
            axes.plot([at, at], [min(over), max(over)], color="black", linewidth=0.8)
    for group, task in enumerate(tasks):
        axes.plot([group - 0.42, group + 0.42], [task.greedy - task.bound] * 2, color="#d62728", linewidth=1,
                  label="greedy" if group == 0 else None)
    axes.set_yscale("symlog", linthresh=2)
    axes.set_yticks(TICKS, map(str, TICKS))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.set_ylabel("devices above the bound")
    axes.tick_params(axis="x", labelsize=7)
    plt.setp(axes.get_xticklabels(), rotation=35, ha="right", rotation_mode="anchor")
    axes.legend(loc="center left", bbox_to_anchor=(1, 0.5), fontsize=8)
    pictures.save(drawing, setup.results.plot("mig_search"))


def run(setup):
    tasks = measure(setup)
    setup.results.table("mig_search", ["task", "services", "greedy", "bound", *SEARCHES.values()],
                        [[task.name, task.services, task.greedy, task.bound,
                          *(text(task.devices(search)) for search in SEARCHES)] for task in tasks])
    open_tasks = [task for task in tasks if task.has_gap]
    for key, other in (("random", "random"), ("best_ten", "random-best-ten"), ("tree", "tree"),
                       ("filling", "genetic-random")):
        fewer = sum(task.mean("genetic") < task.mean(other) for task in open_tasks)
        more = sum(task.mean("genetic") > task.mean(other) for task in open_tasks)
        setup.results.value(f"mig_search_{key}", f"fewer in {fewer}, more in {more} of {len(open_tasks)}")
    gains = [gain for task in open_tasks for gain in task.gains()]
    setup.results.value("mig_search_gain", f"{text(gains)} %")
    draw(setup, tasks)
    return tasks
