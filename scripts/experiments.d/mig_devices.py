"""Devices on generated workloads: MIG-serving figures 9 to 12, and the saving over the share of sub-linear models."""
import statistics

import pictures
from mig_setup import CAPS, COLOURS, LARGEST_BATCH, NAMES, READING_NAMES, READINGS, STRICT, WORKLOADS, saved

PARTS = tuple(step / 8 for step in range(9))        # of sub-linear models
MODEL_SEEDS = (1, 2, 3)                             # of the sweep, whose needs are those of normal-1
SEARCH_SEEDS = (1, 2, 3, 4, 5)
PROCESSES = (1, 2, 4)                               # section 8.1, combining MIG and MPS
MIXED = 0.5                                         # the part of sub-linear models in all but the sweep
PAPER_ROUNDS = 10
PRINTED = "printed-two-phase"
# AWS, us-east-1, on demand: an eighth of a p4d.24xlarge, a g4dn.xlarge, an eighth of a g4dn.metal.
A100_DOLLARS, T4_DOLLARS, T4_OF_EIGHT_DOLLARS = 32.77 / 8, 0.526, 7.824 / 8


def case(reading="paper", cap=LARGEST_BATCH, part=MIXED, seed=1, search_seed=1, processes=1, workloads=WORKLOADS,
         geometry=STRICT, rounds=PAPER_ROUNDS, printed=0):
    return {"reading": reading, "cap": cap, "part": part, "seed": seed, "search_seed": search_seed,
            "processes": processes, "geometry": geometry, "workloads": workloads, "rounds": rounds,
            "printed": printed}


def options_of(one):
    return ["--batch-ms", f"{READINGS[one['reading']]:g}", "--largest-batch", one["cap"], "--sub-linear", one["part"],
            "--processes", one["processes"], "--geometry", one["geometry"], "--seed", one["seed"], "--search-seed",
            one["search_seed"], "--rounds", one["rounds"], "--printed-rounds", one["printed"],
            "--workloads", *one["workloads"]]


def cases(quick):
    """{name of the comparison: [case]}"""
    seeds = SEARCH_SEEDS[:2] if quick else SEARCH_SEEDS
    parts = (0.0, MIXED, 1.0) if quick else PARTS
    rounds = 1 if quick else PAPER_ROUNDS
    caps = (CAPS[0], CAPS[-1]) if quick else CAPS
    return {
        "settings": [case(reading, cap, rounds=rounds) for reading in READINGS for cap in CAPS],
        "sweep": [case(reading, cap, part, seed, workloads=WORKLOADS[:1], rounds=rounds)
                  for reading in READINGS for cap in caps for part in parts
                  for seed in (MODEL_SEEDS[:1] if quick else MODEL_SEEDS)],
        "processes": [case(processes=processes, rounds=rounds) for processes in PROCESSES[1:]],
        "rules": [case(geometry="a100-40", rounds=rounds)],
        "searches": [case(reading, cap, search_seed=seed, rounds=rounds)
                     for reading, cap in (("paper", 8), ("paper", 32), ("half", 32)) for seed in seeds],
        "models": [case(seed=seed, rounds=rounds) for seed in seeds],
        "printed": [case(search_seed=seed, rounds=1, printed=rounds) for seed in (seeds if quick else seeds[:3])],
    }


class Outcome:
    """What bench_mig_optimise printed for one case."""

    def __init__(self, one, rows):
        self.case, self.rows = one, rows
        self.workloads = one["workloads"]

    def devices(self, workload, what):
        return next(float(row["devices"]) for row in self.rows
                    if (row["workload"], row["what"], row["round"]) == (workload, what, ""))

    def seconds(self, workload, what):
        return next(float(row["seconds"]) for row in self.rows
                    if (row["workload"], row["what"], row["round"]) == (workload, what, ""))

    def rounds(self, workload, what="two-phase"):
        """Devices after each round, from the trimmed greedy deployment on."""
        return [float(row["devices"]) for row in self.rows
                if (row["workload"], row["what"]) == (workload, what) and row["round"]]

    def first(self, workload, what="two-phase"):
        return self.rounds(workload, what)[0]

    def saved(self, workload, what="two-phase"):
        return saved(self.devices(workload, what), self.devices(workload, "whole"))

    def above(self, workload, bound="bound-without-rules"):
        return 100 * (self.devices(workload, "two-phase") / self.devices(workload, bound) - 1)

    def gain(self, workload, what="two-phase"):
        """What the rounds save of the greedy devices, in percent."""
        return saved(self.devices(workload, what), self.first(workload, what))


class Devices:
    """The outcomes by comparison."""

    def __init__(self, outcomes):
        self.outcomes = outcomes

    def of(self, comparison, **wanted):
        return [one for one in self.outcomes[comparison]
                if all(one.case[key] == value for key, value in wanted.items())]

    @property
    def papers(self):
        """The paper's setting: 100 ms for the batch, batches up to 32."""
        return self.of("settings", reading="paper", cap=LARGEST_BATCH)[0]


def measure(setup):
    wanted = cases(setup.quick)
    every = [(name, one) for name, group in wanted.items() for one in group]
    found = setup.runner.map("mig, devices", lambda item: setup.bench_csv("bench_mig_optimise", *options_of(item[1])),
                             every, lambda item: len(item[1]["workloads"]))
    outcomes = {}
    for (name, one), rows in zip(every, found):
        outcomes.setdefault(name, []).append(Outcome(one, rows))
    write_csv(setup, outcomes)
    return Devices(outcomes)


def write_csv(setup, outcomes):
    columns = ["reading", "cap", "part", "processes", "geometry", "seed", "search_seed"]
    for file, names in (("mig_optimise.csv", [name for name in outcomes if name != "sweep"]),
                        ("mig_sub_linear.csv", ["sweep"])):
        rows = [[name, *(one.case[column] for column in columns), row["workload"], row["what"], row["round"],
                 float(row["devices"])]
                for name in names for one in outcomes[name] for row in one.rows
                if name != "sweep" or (row["workload"] != "kinds" and not row["round"])]
        setup.results.csv(file, ["scripts/experiments --only mig",
                                 "each row: bench_mig_optimise --batch-ms (100: reading paper, 50: half) "
                                 "--largest-batch CAP --sub-linear PART --processes PROCESSES --geometry GEOMETRY "
                                 f"--seed SEED --search-seed SEARCH_SEED --rounds {PAPER_ROUNDS}"],
                          ["comparison", *columns, "workload", "what", "round", "devices"], rows)


# ---- tables

def tables(setup, devices):
    papers = devices.papers
    lines = [(NAMES[what], [f"{papers.devices(load, what):.0f}" for load in WORKLOADS])
             for what in ("whole", "7x1", "mix", "greedy", "two-phase")]
    lines += [("the paper's bound, without MIG's rules",
               [f"{papers.devices(load, 'bound-without-rules'):.1f}" for load in WORKLOADS]),
              ("with MIG's rules and whole instances",
               [f"{papers.devices(load, 'bound-of-whole'):.1f}" for load in WORKLOADS]),
              ("two-phase above the paper's bound", [f"{papers.above(load):.1f} %" for load in WORKLOADS]),
              ("two-phase saves against 7/7", [f"{papers.saved(load):.1f} %" for load in WORKLOADS]),
              ("no plan saves more than", [f"{papers.saved(load, 'bound-of-whole'):.1f} %" for load in WORKLOADS])]
    setup.results.table("mig_devices", ["", *WORKLOADS], [[name, *values] for name, values in lines])
    setup.results.table("mig_settings", ["setting", "7x1/7", "4-2-1", "greedy", "two-phase", "bound"],
                        [[f"{READING_NAMES[one.case['reading']]}, at most {one.case['cap']} a batch",
                          *(span([one.saved(load, what) for load in WORKLOADS])
                            for what in ("7x1", "mix", "greedy", "two-phase", "bound-of-whole"))]
                         for one in devices.outcomes["settings"]])
    setup.results.table("mig_sub_linear", ["setting, sub-linear models", "two-phase", "bound"],
                        [[f"{READING_NAMES[reading]}, at most {cap}: {100 * part:.0f} %",
                          mean_and_span([one.saved(load) for one in found for load in one.workloads]),
                          mean_and_span([one.saved(load, "bound-of-whole") for one in found for load in one.workloads])]
                         for reading in READINGS for cap in CAPS for part in (0.0, MIXED, 1.0)
                         if (found := devices.of("sweep", reading=reading, cap=cap, part=part))])
    genetic_table(setup, devices)
    setup.results.table("mig_processes", ["at most so many processes", *WORKLOADS],
                        [[one.case["processes"], *(f"{one.saved(load):.1f} %" for load in WORKLOADS)]
                         for one in (papers, *devices.outcomes["processes"])])
    kinds = [row for row in papers.rows if row["workload"] == "kinds"]
    batches = list(dict.fromkeys(row["round"] for row in kinds))
    setup.results.table("mig_kinds", ["of the 24 generated models, at batch", *batches],
                        [[kind, *(f"{float(row['devices']):.0f}" for row in kinds if row["what"] == kind)]
                         for kind in dict.fromkeys(row["what"] for row in kinds)])


def genetic_table(setup, devices):
    rows = []
    groups = [(f"{READING_NAMES[reading]}, at most {cap}", devices.of("searches", reading=reading, cap=cap))
              for reading, cap in (("paper", 8), ("paper", 32), ("half", 32))]
    for name, found in groups:
        for load in WORKLOADS:
            gains = [one.gain(load) for one in found]
            rows.append([f"{name}, {load}", f"{found[0].first(load):.0f}",
                         f"{found[0].devices(load, 'bound-of-whole'):.1f}",
                         mean_and_deviation([one.devices(load, "two-phase") for one in found]),
                         f"{mean_and_deviation(gains, 2)} %"])
    setup.results.table("mig_genetic", ["setting and workload", "greedy", "bound", "after 10 rounds, five seeds",
                                        "gain over greedy"], rows)
    printed_table(setup, devices)
    gains = [one.gain(load) for one in devices.outcomes["models"] for load in WORKLOADS]
    setup.results.value("mig_gain_of_models", f"{mean_and_deviation(gains, 2)} %, {max(gains):.2f} % at most")


def printed_table(setup, devices):
    """Figure 12 with the algorithms as printed."""
    found = devices.outcomes["printed"]
    rows = []
    for load in WORKLOADS:
        gains = [one.gain(load, PRINTED) for one in found]
        rows.append([load, f"{found[0].devices(load, 'greedy'):.0f}", f"{found[0].first(load, PRINTED):.0f}",
                     mean_and_deviation([one.devices(load, PRINTED) for one in found]), f"{mean_and_deviation(gains, 2)} %"])
    setup.results.table("mig_printed", ["workload", "our greedy", "printed greedy", "printed, after 10 rounds, three seeds",
                                        "gain over printed greedy"], rows)


def span(values, digits=1):
    return f"{min(values):.{digits}f} to {max(values):.{digits}f} %"


def mean_and_span(values):
    return f"{statistics.mean(values):.1f} % ({span(values)})"


def mean_and_deviation(values, digits=1):
    deviation = statistics.stdev(values) if len(values) > 1 else 0.0
    return f"{statistics.mean(values):.{digits}f} ± {deviation:.{digits}f}"


def values(setup, devices):
    relaxed = devices.outcomes["rules"][0]
    setup.results.value("mig_relaxed_rule", ", ".join(
        f"{relaxed.devices(load, 'two-phase'):.0f} ({devices.papers.devices(load, 'two-phase'):.0f})"
        for load in WORKLOADS))
    for name, what in (("greedy", "greedy"), ("two_phase", "two-phase")):
        slowest = max(devices.papers.seconds(load, what) for load in WORKLOADS)
        setup.results.value(f"mig_seconds_{name}", f"{slowest:.1f} s")
    costs = relative_costs(devices.papers)
    for name, key in (("T4", "mig_cost_t4"), ("T4, of g4dn.metal", "mig_cost_t4_of_eight")):
        setup.results.value(key, span([100 * (cost - 1) for cost in costs[name]], 0))


# ---- figures

def relative_costs(papers):
    """$/h of each, over two-phase's, by workload."""
    price = {"whole": A100_DOLLARS, "7x1": A100_DOLLARS, "two-phase": A100_DOLLARS}
    cost = {NAMES[what]: [papers.devices(load, what) * dollars for load in WORKLOADS]
            for what, dollars in price.items()}
    cost["T4"] = [papers.devices(load, "t4") * T4_DOLLARS for load in WORKLOADS]
    cost["T4, of g4dn.metal"] = [papers.devices(load, "t4") * T4_OF_EIGHT_DOLLARS for load in WORKLOADS]
    least = cost[NAMES["two-phase"]]
    return {name: [value / most for value, most in zip(found, least)] for name, found in cost.items()}


def draw_devices(setup, papers):
    drawing, axes = pictures.figure(width=9, height=3.2)
    shown = {**{what: NAMES[what] for what in ("whole", "7x1", "mix", "greedy", "two-phase")},
             "bound-without-rules": "bound"}
    heights = {name: [papers.devices(load, what) / papers.devices(load, "whole") for load in WORKLOADS]
               for what, name in shown.items()}
    pictures.grouped_bars(axes, WORKLOADS, list(shown.values()), heights, COLOURS)
    for place, (what, name) in enumerate(shown.items()):
        for group, load in enumerate(WORKLOADS):
            at = group + (place - (len(shown) - 1) / 2) * 0.8 / len(shown)
            axes.text(at, heights[name][group] + 0.01, f"{papers.devices(load, what):.0f}", ha="center", fontsize=6.5)
    axes.set_ylabel("devices, of those of 7/7")
    axes.set_ylim(0, 1.15)
    axes.legend(loc="center left", bbox_to_anchor=(1, 0.5), fontsize=8)
    pictures.save(drawing, setup.results.plot("mig_devices"))


def draw_sub_linear(setup, devices):
    caps = sorted({one.case["cap"] for one in devices.outcomes["sweep"]})
    parts = sorted({one.case["part"] for one in devices.outcomes["sweep"]})
    drawing, plots = pictures.figure(2, len(caps), width=9, height=5, sharex=True, sharey=True, squeeze=False)
    for row, reading in zip(plots, READINGS):
        for axes, cap in zip(row, caps):
            for what, name, style in (("bound-of-whole", "bound: no plan saves more", "--"),
                                      ("two-phase", "two-phase", "-")):
                found = [[one.saved(load, what) for one in devices.of("sweep", reading=reading, cap=cap, part=part)
                          for load in one.workloads] for part in parts]
                at = [100 * part for part in parts]
                colour = COLOURS["bound" if name.startswith("bound") else name]
                axes.plot(at, [statistics.mean(one) for one in found], style, color=colour, label=name, linewidth=1.3)
                if what == "two-phase":
                    axes.fill_between(at, [min(one) for one in found], [max(one) for one in found], color=colour,
                                      alpha=0.2, linewidth=0, label="least to most")
            axes.axhline(40, color="#d62728", linewidth=0.9, linestyle=":", label="the paper: up to 40 %")
            axes.set_title(f"{READING_NAMES[reading].split(' (')[0]}, at most {cap}", fontsize=9)
    for axes in plots[-1]:
        axes.set_xlabel("sub-linear models, %")
    for row in plots:
        row[0].set_ylabel("devices saved, %")
    plots[0][-1].legend(loc="center left", bbox_to_anchor=(1, 0.5), fontsize=8)
    pictures.save(drawing, setup.results.plot("mig_sub_linear"))


def draw_cost(setup, papers):
    drawing, axes = pictures.figure(width=9, height=2.8)
    costs = relative_costs(papers)
    pictures.grouped_bars(axes, WORKLOADS, list(costs), costs,
                          {**COLOURS, "T4": "#d95f0e", "T4, of g4dn.metal": "#fdae6b"})
    axes.axhline(1, color="black", linewidth=0.8, linestyle=":")
    axes.set_ylabel("$/h, of those of two-phase")
    axes.legend(loc="center left", bbox_to_anchor=(1, 0.5), fontsize=8)
    pictures.save(drawing, setup.results.plot("mig_cost"))


def draw_processes(setup, devices):
    drawing, axes = pictures.figure(width=9, height=2.6)
    found = (devices.papers, *devices.outcomes["processes"])
    names = [f"{one.case['processes']} process{'es' if one.case['processes'] > 1 else ''}" for one in found]
    pictures.grouped_bars(axes, names, WORKLOADS, {load: [one.saved(load) for one in found] for load in WORKLOADS},
                          COLOURS)
    axes.set_ylabel("devices saved, %")
    axes.legend(loc="center left", bbox_to_anchor=(1, 0.5), fontsize=8)
    pictures.save(drawing, setup.results.plot("mig_processes"))


def draw_rounds(setup, devices):
    """The mean over the seeds of the search, and the least and the most."""
    found = devices.of("searches", reading="paper", cap=LARGEST_BATCH)
    drawing, axes = pictures.figure(width=9, height=2.8)
    for load in WORKLOADS:
        series = []
        for one in found:
            rounds = one.rounds(load)
            series.append([rounds[min(at, len(rounds) - 1)] / one.first(load) for at in range(PAPER_ROUNDS + 1)])
        columns = list(zip(*series))
        axes.plot(range(len(columns)), [statistics.mean(column) for column in columns], marker="o", markersize=3,
                  color=COLOURS[load], label=load)
        axes.fill_between(range(len(columns)), [min(column) for column in columns],
                          [max(column) for column in columns], color=COLOURS[load], alpha=0.15, linewidth=0)
        axes.axhline(found[0].devices(load, "bound-of-whole") / found[0].first(load), color=COLOURS[load],
                     linewidth=0.8, linestyle=":")
    axes.set_ylim(0.97, 1.002)
    axes.set_xlabel("round")
    axes.set_ylabel("devices, of greedy's")
    axes.legend(loc="center left", bbox_to_anchor=(1, 0.5), fontsize=8)
    pictures.save(drawing, setup.results.plot("mig_rounds"))


def run(setup):
    devices = measure(setup)
    tables(setup, devices)
    values(setup, devices)
    draw_devices(setup, devices.papers)
    draw_sub_linear(setup, devices)
    draw_cost(setup, devices.papers)
    draw_processes(setup, devices)
    draw_rounds(setup, devices)
    return devices
