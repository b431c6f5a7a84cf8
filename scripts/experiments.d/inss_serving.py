"""InSS's policies and its baselines under waves of load: figures 15 to 23."""
from dataclasses import dataclass
from statistics import fmean

import pictures
from files import read_csv
from inss_setup import COLOURS, EIGHT, MOST_PARTITIONS, PUBLISHED, SECONDS, SIX
from inss_training import EIGHT_4, EIGHT_5, SEEDS, SIX_CASE, policy_file
from program import NOISE, run_json

LOADS = (0.85, 1.0, 1.15, 1.3)   # of every policy
# Until a policy violates more than MOST_VIOLATED.
MORE_LOADS = (1.45, 1.6, 1.75, 1.9, 2.05, 2.2, 2.4, 2.7, 3, 4, 6, 8)
MOST_VIOLATED = 0.01
COMPARED = 1.0                   # the load of figures 15 to 18
AUTHORS = "authors"              # the load of the authors' environment
WATCHED = ("resnet50", "mobilenet")  # figures 19 and 20: ResNet50, and MobileNet in place of MnasNet
NO_INTERFERENCE = ("--no-interference", *PUBLISHED)


@dataclass(frozen=True)
class Choice:
    name: str
    policy: str
    devices: int
    case: object = None    # of a trained policy
    partitions: int = MOST_PARTITIONS
    flags: tuple = PUBLISHED


def rules(devices):
    """The paper's Gpulet has two partitions and no interference; `elastic` has our defaults."""
    return (Choice("gpulet", "elastic-published", devices, partitions=2, flags=NO_INTERFERENCE),
            Choice("elastic-batch-search", "elastic-batch-search", devices, partitions=2, flags=NO_INTERFERENCE),
            Choice("guided-self-tuning", "guided-self-tuning", devices), Choice("igniter", "igniter", devices),
            Choice("elastic", "elastic", devices, flags=()))


CHOICES = {SIX: (Choice("inss", "inss", 4, SIX_CASE),
                 Choice("inss-ni", "inss", 4, SIX_CASE, flags=NO_INTERFERENCE), *rules(4)),
           EIGHT: (Choice("inss_4", "inss", 4, EIGHT_4), Choice("inss_5", "inss", 5, EIGHT_5), *rules(6))}


@dataclass(frozen=True)
class Run:
    """One simulation's figures."""
    models: int
    policy: str
    load: object         # times the waves, or AUTHORS
    seed: int
    offered: float       # requests/s
    in_time: float       # requests/s
    batch_rate: float    # requests/s: planned batch / its time beside the others, summed over models (section 4.1)
    late: float          # fractions of the requests
    dropped: float
    devices: float       # means over time
    share_percent: float
    planned_batch: float  # of the first of WATCHED
    run_batch: float
    response_ms: tuple   # means of WATCHED
    series: tuple

    @property
    def violated(self):
        return self.late + self.dropped


def simulate(setup, models, choice, load, seed):
    demand = setup.demand(f"serve-{len(models)}", setup.highest[models])
    policy = choice.policy
    if choice.case is not None:
        trained = seed if choice.case == SIX_CASE else 1
        policy = f"inss:{policy_file(setup, choice.case, trained)}"
    trace = setup.authors_trace(seed) if load == AUTHORS else setup.trace(models, load)
    series = setup.path(f"series-{len(models)}-{choice.name}-{load}-{seed}.csv")
    document = run_json([str(setup.gpulet), "simulate", *setup.planning(demand, choice.devices, choice.partitions),
                         *choice.flags, "--policy", policy, "--trace", str(trace), "--seconds",
                         str(setup.seconds), "--seed", str(seed), "--noise", str(NOISE), "--series", str(series),
                         "--json"])
    rows = read_csv(series)
    of = document["models"]
    offered = sum(model["offered"] for model in of)
    late = sum(model["late"] for model in of)

    def mean(column):
        return fmean(float(row[column]) for row in rows)

    return Run(len(models), choice.name, load, seed, offered / setup.seconds,
               (sum(model["served"] for model in of) - late) / setup.seconds,
               sum(mean(f"{model} batch rate") for model in models), late / offered,
               sum(model["dropped"] for model in of) / offered, document["devices_mean"], mean("share_percent"),
               mean(f"{WATCHED[0]} batch planned"), mean(f"{WATCHED[0]} batch run"),
               tuple(mean(f"{model} response_ms") for model in WATCHED), tuple(rows))


def climb(setup, models, choice):
    """The runs of a policy: every load of LOADS, then higher ones until it violates more than MOST_VIOLATED."""
    seeds = SEEDS[:1] if setup.quick else SEEDS
    runs = []
    for load in LOADS[:2] if setup.quick else LOADS + MORE_LOADS:
        if load in MORE_LOADS and fmean(run.violated for run in runs[-len(seeds):]) > MOST_VIOLATED:
            break
        runs += [simulate(setup, models, choice, load, seed) for seed in seeds]
    return runs


class Runs:
    """Of all policies for one set of models; figures are means over the seeds."""

    def __init__(self, runs):
        self.runs = runs
        self.names = list(dict.fromkeys(run.policy for run in runs))

    def of(self, policy, load):
        return [run for run in self.runs if (run.policy, run.load) == (policy, load)]

    def mean(self, policy, load, figure):
        return fmean(getattr(run, figure) for run in self.of(policy, load))

    def loads(self, policy):
        return sorted({run.load for run in self.runs if run.policy == policy})

    def highest_load(self, policy):
        """The highest load before the first at which the policy violates more than MOST_VIOLATED; None: no load."""
        highest = None
        for load in self.loads(policy):
            if self.mean(policy, load, "violated") > MOST_VIOLATED:
                break
            highest = load
        return highest

    def over(self, policy, other, figure="batch_rate", load=COMPARED):
        return self.mean(policy, load, figure) / self.mean(other, load, figure) - 1

    def over_seeds(self, policy, other, load=COMPARED):
        """How much more throughput (b/t) the policy has, of each seed."""
        found = {run.seed: run.batch_rate for run in self.of(other, load)}
        return [run.batch_rate / found[run.seed] - 1 for run in self.of(policy, load)]


def authors_runs(setup):
    """Of all policies under the authors' load."""
    seeds = SEEDS[:1] if setup.quick else SEEDS
    tasks = [(choice, seed) for choice in CHOICES[SIX] for seed in seeds]
    return Runs(setup.runner.map("inss, authors' load", lambda task: simulate(setup, SIX, task[0], AUTHORS, task[1]), tasks))


def authors_table(setup, runs):
    setup.results.table("inss_authors", ["policy", "throughput (b/t)", "in time/s", "late", "dropped", "devices"], [
        [f"`{name}`", *(f"{runs.mean(name, AUTHORS, figure):.0f}" for figure in ("batch_rate", "in_time")),
         *(f"{100 * runs.mean(name, AUTHORS, figure):.2f} %" for figure in ("late", "dropped")),
         f"{runs.mean(name, AUTHORS, 'devices'):.1f}"] for name in runs.names])


def tables(setup, runs, count):
    lines = []
    for name in runs.names:
        highest = runs.highest_load(name)
        at = [f"{runs.mean(name, highest, figure):.0f}" if highest else "–" for figure in ("batch_rate", "in_time")]
        lines.append([f"`{name}`", f"{runs.mean(name, COMPARED, 'batch_rate'):.0f}",
                      f"{runs.mean(name, COMPARED, 'in_time'):.0f}",
                      f"{100 * runs.mean(name, COMPARED, 'late'):.2f} %",
                      f"{100 * runs.mean(name, COMPARED, 'dropped'):.2f} %",
                      f"{runs.mean(name, COMPARED, 'devices'):.1f}", f"{highest:g}" if highest else "none", *at])
    setup.results.table(f"inss_{count}", ["policy", "throughput (b/t) at load 1", "in time/s", "late", "dropped",
                                          "devices", "highest load with at most 1 % violated",
                                          "throughput (b/t) there", "in time/s there"], lines)
    common = [load for load in LOADS if all(runs.of(name, load) for name in runs.names)]
    setup.results.table(f"inss_{count}_violations", ["policy", *(f"load {load:g}" for load in common)],
                        [[f"`{name}`", *(f"{100 * runs.mean(name, load, 'violated'):.2f} %" for load in common)]
                         for name in runs.names])


def draw_bars(setup, runs, count):
    drawing, plots = pictures.figure(1, 2, width=9.5, height=3)
    places = range(len(runs.names))
    for axes, figure, label in zip(plots, ("batch_rate", "in_time"), ("throughput (b/t), 1/s", "in time, 1/s")):
        axes.bar(places, [runs.mean(name, COMPARED, figure) for name in runs.names],
                 color=[COLOURS[name] for name in runs.names])
        axes.set_xticks(places, runs.names, rotation=60, ha="right", fontsize=7)
        axes.set_ylabel(label)
    plots[1].axhline(runs.mean(runs.names[0], COMPARED, "offered"), color="black", linewidth=0.8, linestyle=":")
    pictures.save(drawing, setup.results.plot(f"inss_throughput_{count}"))


def draw_violations(setup, runs, count):
    drawing, plots = pictures.figure(1, 2, width=9.5, height=3)
    late = [100 * runs.mean(name, COMPARED, "late") for name in runs.names]
    dropped = [100 * runs.mean(name, COMPARED, "dropped") for name in runs.names]
    plots[0].bar(range(len(late)), late, color="#d95f0e", label="late")
    plots[0].bar(range(len(late)), dropped, bottom=late, color="#fdae6b", label="dropped")
    plots[0].set_xticks(range(len(late)), runs.names, rotation=60, ha="right", fontsize=7)
    plots[0].set_title("load 1")
    for name in runs.names:
        loads = runs.loads(name)
        plots[1].plot(loads, [100 * runs.mean(name, load, "violated") for load in loads], color=COLOURS[name],
                      linewidth=1.2, marker="o", markersize=3, label=name)
    plots[1].set_xlabel("load")
    for axes in plots:
        axes.set_yscale("symlog", linthresh=1)
        axes.set_yticks([0, 0.5, 1, 10, 100], ["0", "0.5", "1", "10", "100"])
        axes.axhline(1, color="black", linewidth=0.8, linestyle=":")
    plots[0].set_ylabel("violations, %")
    plots[0].legend(fontsize=7)
    plots[1].legend(loc="center left", bbox_to_anchor=(1, 0.5), fontsize=7)
    pictures.save(drawing, setup.results.plot(f"inss_violations_{count}"))


def draw_over_time(setup, runs, models, name, label, value):
    drawing, axes = pictures.figure(width=9, height=3)
    for policy in runs.names:
        rows = runs.of(policy, COMPARED)[0].series
        axes.plot([float(row["time_s"]) for row in rows], [value(row) for row in rows], color=COLOURS[policy],
                  linewidth=1.2, label=policy)
    axes.set_xlabel("time, s")
    axes.set_ylabel(label)
    axes.set_ylim(0, None)
    axes.legend(loc="center left", bbox_to_anchor=(1, 0.5), fontsize=8)
    pictures.save(drawing, setup.results.plot(name))


def draw_batches(setup, runs):
    shown = ("inss", "gpulet")
    drawing, plots = pictures.figure(1, 2, width=9, height=2.8, sharey=True)
    for axes, policy in zip(plots, shown):
        rows = runs.of(policy, COMPARED)[0].series
        for column, colour in (("planned", "#3182bd"), ("run", "#d95f0e")):
            axes.plot([float(row["time_s"]) for row in rows],
                      [float(row[f"{WATCHED[0]} batch {column}"]) for row in rows], color=colour, linewidth=1.2,
                      label=column)
        axes.set_title(policy)
        axes.set_xlabel("time, s")
    plots[0].set_ylabel(f"batch of {WATCHED[0]}")
    plots[0].legend(fontsize=8)
    pictures.save(drawing, setup.results.plot("inss_batches"))


def latency_table(setup, runs):
    setup.results.table("inss_latency", ["policy", *(f"{model}, ms" for model in WATCHED), "planned batch", "run batch"],
                        [[f"`{name}`", *(f"{fmean(run.response_ms[at] for run in runs.of(name, COMPARED)):.1f}"
                                         for at in range(len(WATCHED))),
                          f"{runs.mean(name, COMPARED, 'planned_batch'):.1f}",
                          f"{runs.mean(name, COMPARED, 'run_batch'):.1f}"] for name in runs.names])


def items(trained):
    """[(models, choice)] of the choices with a trained policy, or of the others."""
    return [(models, choice) for models, choices in CHOICES.items() for choice in choices
            if (choice.case is not None) == trained]


def run(setup, climbed):
    """The runs by number of models. `climbed` has those of the choices without a trained policy, by item."""
    last = items(trained=True)
    climbed = climbed | dict(zip(last, setup.runner.map("inss, serving", lambda item: climb(setup, *item), last)))
    found = {len(models): Runs([run for choice in choices for run in climbed[models, choice]])
             for models, choices in CHOICES.items()}
    authors = authors_runs(setup)
    setup.results.csv("inss_serving.csv", [
        "scripts/experiments --only inss",
        f"gpulet simulate --policy POLICY --trace (LOAD times the waves) --seconds {SECONDS} --seed SEED --noise {NOISE}"],
        ["models", "policy", "load", "seed", "offered_rate", "in_time_rate", "batch_rate", "late", "dropped",
         "devices_mean", "share_percent", f"{WATCHED[0]}_planned", f"{WATCHED[0]}_run",
         *(f"{model}_response_ms" for model in WATCHED)],
        [[run.models, run.policy, run.load, run.seed, run.offered, run.in_time, run.batch_rate, run.late, run.dropped,
          run.devices, run.share_percent, run.planned_batch, run.run_batch, *run.response_ms]
         for runs in (*found.values(), authors) for run in runs.runs])
    authors_table(setup, authors)
    for count, runs in found.items():
        tables(setup, runs, count)
        draw_bars(setup, runs, count)
        draw_violations(setup, runs, count)
    draw_over_time(setup, found[6], SIX, "inss_throughput_over_time", "throughput (b/t), 1/s",
                   lambda row: sum(float(row[f"{model} batch rate"]) for model in SIX))
    draw_over_time(setup, found[8], EIGHT, "inss_shares", "sum of shares, %", lambda row: float(row["share_percent"]))
    draw_batches(setup, found[6])
    latency_table(setup, found[6])
    return found, authors
