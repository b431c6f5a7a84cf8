"""Planning time over models and devices: plots the times of bench/schedule."""
import re
from pathlib import Path

import pictures
from program import run_json
from results import percent

NAME = "planning_time"
CASE = re.compile(r"plan/(?P<policy>[^/]+)/(?P<load>[^/]+)/models:(?P<models>\d+)/devices:(?P<devices>\d+)$")
LOADS = "(moderate|overload)(_learned)?"
# All policies up to 200 models. Beyond, those that are made for it, and one load of cover: the others would take most of
# the study's time. Each part is a program of its own.
PARTS = (f"^plan/((auto|elastic)/{LOADS}|cover/moderate)/models:1000/",
         f"^plan/[^/]*/{LOADS}/models:(5|10|100|200)/")
QUICK_PARTS = ("models:5/",)
FLAGS = ("--benchmark_format=json", "--benchmark_min_time=0.1")
QUICK_FLAGS = ("--benchmark_format=json", "--benchmark_min_time=0.01")


def read(document):
    """[{policy, load, models, devices, microseconds, devices_used, unserved, lower_bound}] in the order of the document.

    The time is the processor's, so that what else the machine does matters less.
    """
    rows = []
    for one in document["benchmarks"]:
        case = CASE.match(one["name"])
        if case is None or one.get("error_occurred"):
            continue
        rows.append({"policy": case["policy"], "load": case["load"], "models": int(case["models"]),
                     "devices": int(case["devices"]), "microseconds": one["cpu_time"],
                     "devices_used": int(one["devices_used"]), "unserved": int(one["unserved"]),
                     "lower_bound": int(one["lower_bound"]) if "lower_bound" in one else ""})
    return rows


def in_words(microseconds):
    for limit, unit in ((1000, "µs"), (1e6, "ms")):
        if microseconds < limit:
            value = microseconds * 1000 / limit
            return f"{value:.1f} {unit}" if value < 10 else f"{value:.0f} {unit}"
    return f"{microseconds / 1e6:.1f} s"


def words(load):
    return load.replace("_learned", " with interference")


def sizes_of(rows):
    return sorted({(row["models"], row["devices"]) for row in rows})


def bounds_table(results, rows):
    """The gap to the lower bound of plans that have one and serve everything."""
    results.table("planning_bounds", ["policy, load, size", "devices used", "at least needed", "apart by at most"], [
        [f"`{row['policy']}`, {words(row['load'])}, {row['models']} models on {row['devices']:,}", row["devices_used"],
         row["lower_bound"], percent(row["devices_used"] - row["lower_bound"], row["lower_bound"])]
        for row in rows if row["lower_bound"] and row["unserved"] == 0])


def draw(results, rows):
    loads = sorted({row["load"] for row in rows})
    drawing, axes = pictures.figure(1, len(loads), width=1.4 + 3.2 * len(loads), height=3.6, sharey=True, squeeze=False)
    names = [f"{models}\n{devices}" for models, devices in sizes_of(rows)]
    for plot, load in zip(axes[0], loads):
        for policy in sorted({row["policy"] for row in rows}):
            times = {(row["models"], row["devices"]): row["microseconds"] / 1e6 for row in rows
                     if row["policy"] == policy and row["load"] == load}
            places = [place for place, size in enumerate(sizes_of(rows)) if size in times]
            plot.plot(places, [times[sizes_of(rows)[place]] for place in places], marker="o", markersize=3.5,
                      label=policy, color=pictures.COLOURS.get(policy))
        plot.set_yscale("log")
        plot.set_xticks(range(len(names)), names)
        plot.set_xlabel("models\ndevices")
        plot.set_title(words(load))
    axes[0][0].set_ylabel("time of a plan, s")
    axes[0][-1].legend(loc="center left", bbox_to_anchor=(1, 0.5))
    pictures.save(drawing, results.plot("planning_time"))


def run(measured, runner, results, quick):
    program = Path(measured.gpulet).parent / "bench_schedule"
    if not program.is_file():
        print(f"    planning_time: skipped; {program} is not built (scripts/test builds it)", flush=True)
        return
    flags, parts = (QUICK_FLAGS, QUICK_PARTS) if quick else (FLAGS, PARTS)
    documents = runner.map(NAME, lambda part: run_json([str(program), *flags, f"--benchmark_filter={part}"]), parts)
    rows = [row for document in documents for row in read(document)]
    results.csv("planning_time.csv", ["scripts/experiments --only planning_time",
                                      *(f"bench_schedule {' '.join(flags)} --benchmark_filter='{part}'" for part in parts)],
                list(rows[0]), [[round(value, 1) if isinstance(value, float) else value for value in row.values()]
                                for row in rows])
    table = []
    for policy in sorted({row["policy"] for row in rows}):
        for load in sorted({row["load"] for row in rows}):
            times = {(row["models"], row["devices"]): row["microseconds"] for row in rows
                     if row["policy"] == policy and row["load"] == load}
            table.append([f"`{policy}`, {words(load)}"] + [in_words(times[size]) if size in times else "–"
                                                   for size in sizes_of(rows)])
    results.table("planning_time", ["policy, load"] + [f"{models} models, {devices:,} devices"
                                                      for models, devices in sizes_of(rows)], table)
    bounds_table(results, rows)
    draw(results, rows)
