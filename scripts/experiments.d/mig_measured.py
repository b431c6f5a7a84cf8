"""Eleven models measured on a real A100: MIG-serving figures 1, 3, 4, 9, 16 and 17, and its authors' GPU counts."""
import statistics

import pictures
from mig_setup import (AS_PUBLISHED, CAPS, COLOURS, MEASURED, NAMES, PROFILES, READING_NAMES, READINGS, SHARES, SLO_MS,
                       WORKLOADS, MeasuredModels, cluster, demand, drawn_devices, kind_of, saved)

POLICIES = {"mig-whole": "whole", "mig-7x1": "7x1", "mig-mix": "mix", "mig-greedy": "greedy",
            "mig-two-phase": "two-phase", "cover": "cover"}
# ParvaGPU (SC 2024), which measured the models: its system's GPUs for the six scenarios, with batches up to 0.45 of the
# objective and up to five processes in an instance.
AUTHORS_GPUS = {1: 2, 2: 3, 3: 5, 4: 7, 5: 13, 6: 16}
AUTHORS_PART = 0.45
LARGEST_BATCH = 128
SCALE = 10                     # of the rates, so that a service fills several whole devices
DEVICES = 600
STUDY_BATCHES = (1, 8, 16, 32)  # of figures 16 to 19
KIND_BATCHES = (1, 2, 4, 8, 16, 32, 64, 128)
PARTITION_BATCH = 8            # of figures 1, 3(b) and 17
# All sets of instances to which none can be added, without 3g beside 4g.
PARTITIONS = ("7", "4-2-1", "4-1-1-1", "3-3", "3-2-2", "3-2-1-1", "3-1-1-1-1", "3-2-1", "3-1-1-1", "2-2-2-1",
              "2-2-1-1-1", "2-1-1-1-1-1", "1-1-1-1-1-1-1")


# ---- devices

def published_cases(quick):
    """[(setting, scenario, scale of the rates, part of the objective, processes)]"""
    scenarios = (1, 2) if quick else tuple(AUTHORS_GPUS)
    cases = []
    for setting, scale, part, processes in (("as ParvaGPU", 1, AUTHORS_PART, 5), ("one process", 1, AUTHORS_PART, 1),
                                            ("ten times the rates", SCALE, 1, 1)):
        cases += [(setting, scenario, scale, part, processes) for scenario in scenarios]
    return cases


def plan(setup, name, rates, slo_ms, cap, policy, processes):
    """The planner allows a batch half of its objective, so `slo_ms` is twice what a batch may take."""
    cluster_file = setup.folder.write_json(f"measured/cluster-{processes}.json", cluster(DEVICES, processes=processes))
    demand_file = setup.folder.write_json(f"measured/{name}.json", demand(rates, slo_ms, cap))
    return setup.gpulet_json("schedule", "--cluster", cluster_file, "--profiles", PROFILES, "--demand", demand_file,
                             "--policy", policy, *AS_PUBLISHED, may_be_unschedulable=True)


def published(setup, models):
    """[(case, policy, plan)]"""
    items = [(case, policy) for case in published_cases(setup.quick) for policy in POLICIES]

    def work(item):
        (setting, scenario, scale, part, processes), policy = item
        of_scenario = models.scenarios[scenario]
        name = f"{setting.replace(' ', '-')}-{scenario}-{policy}"
        rates = {model: scale * rate for model, (rate, _) in of_scenario.items()}
        slo_ms = {model: 2 * part * slo for model, (_, slo) in of_scenario.items()}
        return plan(setup, name, rates, slo_ms, LARGEST_BATCH, policy, processes)

    found = setup.runner.map("mig, measured scenarios", work, items, lambda item: item[0][2])
    return [(case, policy, one) for (case, policy), one in zip(items, found)]


def at_100_ms(setup, models):
    """The measured models as the paper's simulation workloads. [((reading, cap, workload), policy, plan)]"""
    caps, loads = ((CAPS[0], CAPS[-1]), WORKLOADS[:1]) if setup.quick else (CAPS, WORKLOADS)
    items = [((reading, cap, load), policy) for reading in READINGS for cap in caps for load in loads
             for policy in POLICIES]

    def work(item):
        (reading, cap, load), policy = item
        rates = {}
        for model, devices in drawn_devices(load, models.models).items():
            of_device = models.most_rate(model, 7, READINGS[reading], cap)
            if of_device > 0:
                rates[model] = devices * of_device
        return plan(setup, f"{reading}-{cap}-{load}-{policy}", rates, 2 * READINGS[reading], cap, policy, 1)

    found = setup.runner.map("mig, measured models", work, items, lambda item: 5 if item[1] == "cover" else 1)
    return [(case, policy, one) for (case, policy), one in zip(items, found)]


def shown_devices(one):
    return one["devices_used"] if one["schedulable"] else "–"


def plans_csv(setup, name, command, columns, plans):
    setup.results.csv(name, ["scripts/experiments --only mig", command],
                      [*columns, "policy", "devices", "instances", "lower_bound", "schedulable"],
                      [[*case, policy, one["devices_used"],
                        len({(gpulet["node"], gpulet["device"], gpulet["start"]) for gpulet in one["gpulets"]}),
                        one.get("lower_bound", ""), one["schedulable"]] for case, policy, one in plans])


def published_tables(setup, plans):
    by = {(case[0], case[1], policy): one for case, policy, one in plans}
    scenarios = sorted({case[1] for case, _, _ in plans})
    rows = [["ParvaGPU's own system, published", *(AUTHORS_GPUS[one] for one in scenarios),
             sum(AUTHORS_GPUS[one] for one in scenarios)]]
    for setting in dict.fromkeys(case[0] for case, _, _ in plans):
        for policy, name in POLICIES.items():
            found = [by[setting, scenario, policy] for scenario in scenarios]
            rows.append([f"{setting}: {NAMES[name]}", *map(shown_devices, found),
                         sum(one["devices_used"] for one in found)])
        bounds = [by[setting, scenario, "cover"]["lower_bound"] for scenario in scenarios]
        rows.append([f"{setting}: bound", *bounds, sum(bounds)])
    setup.results.table("mig_measured", ["scenario", *map(str, scenarios), "all"], rows)


def saved_of(plans):
    """{(reading, cap): {policy or "bound": [percent saved against 7/7, by workload]}}"""
    whole = {case: one["devices_used"] for case, policy, one in plans if policy == "mig-whole"}
    found = {}
    for case, policy, one in plans:
        of_setting = found.setdefault(case[:2], {})
        of_setting.setdefault(policy, []).append(saved(one["devices_used"], whole[case]))
        if policy == "cover":
            of_setting.setdefault("bound", []).append(saved(one["lower_bound"], whole[case]))
    return found


def span(values, digits=1):
    return f"{min(values):.{digits}f} to {max(values):.{digits}f} %"


def at_100_ms_table(setup, plans):
    setup.results.table("mig_measured_100",
                        ["setting", *(NAMES[name] for name in list(POLICIES.values())[1:]), "bound"],
                        [[f"{READING_NAMES[reading]}, at most {cap}",
                          *(span(of_setting[policy]) for policy in list(POLICIES)[1:]), span(of_setting["bound"])]
                         for (reading, cap), of_setting in saved_of(plans).items()])


def draw_saved(setup, plans):
    drawing, axes = pictures.figure(width=9, height=2.9)
    found = saved_of(plans)
    groups = [f"{READINGS[reading]:.0f} ms,\nat most {cap}" for reading, cap in found]
    shown = {**{policy: NAMES[name] for policy, name in list(POLICIES.items())[1:]}, "bound": "bound"}
    heights = {name: [statistics.mean(of_setting[policy]) for of_setting in found.values()]
               for policy, name in shown.items()}
    pictures.grouped_bars(axes, groups, list(shown.values()), heights, COLOURS)
    axes.axhline(40, color="#d62728", linewidth=0.9, linestyle=":", label="the paper: up to 40 %")
    axes.set_ylabel("devices saved, %")
    axes.legend(loc="center left", bbox_to_anchor=(1, 0.5), fontsize=8)
    pictures.save(drawing, setup.results.plot("mig_measured"))


# ---- the study of section 2.2

def kinds_table(setup, models):
    counts = {}
    for batch in KIND_BATCHES:
        ratios = [models.sub_linearity(model, batch) for model in models.models]
        kinds = [kind_of(ratio) for ratio in ratios if ratio]
        counts[batch] = {kind: kinds.count(kind) for kind in ("sub-linear", "linear", "super-linear")}
    setup.results.table("mig_measured_kinds", ["of the eleven measured models, at batch", *map(str, KIND_BATCHES)],
                        [[kind, *(counts[batch][kind] for batch in KIND_BATCHES)]
                         for kind in ("sub-linear", "linear", "super-linear")])
    return counts


def partition_throughput(models, model, partition):
    """Requests/s of a device whose instances all have the model; instances that cannot run it count 0."""
    return sum(models.throughput(model, int(slices), PARTITION_BATCH) or 0 for slices in partition.split("-"))


def partition_latency(models, model, partition):
    """The mean of the instances' latencies, weighted by their throughputs, as in figure 3(b)."""
    rates = [(models.throughput(model, int(slices), PARTITION_BATCH) or 0,
              models.latency_ms(model, int(slices), PARTITION_BATCH) or 0) for slices in partition.split("-")]
    return sum(rate * latency for rate, latency in rates) / sum(rate for rate, _ in rates)


def partition_spread(models, measure):
    """{model: the most over the least of the partitions}"""
    found = {model: [measure(models, model, partition) for partition in PARTITIONS] for model in models.models}
    return {model: max(values) / min(values) for model, values in found.items()}


def draw_instances(setup, models):
    drawing, plots = pictures.figure(2, len(STUDY_BATCHES), width=9, height=4.6, sharex=True)
    slices = list(SHARES)
    for column, batch in enumerate(STUDY_BATCHES):
        for place, model in enumerate(models.models):
            rates = [models.throughput(model, size, batch) for size in slices]
            colour = pictures.MODEL_COLOURS[place]
            known = [(size, rate, 1000 * batch / rate) for size, rate in zip(slices, rates) if rate]
            smallest, least, _ = known[0]
            plots[0][column].plot([size for size, _, _ in known], [rate / (least / smallest) for _, rate, _ in known],
                                  color=colour, linewidth=1.1, label=model)
            plots[1][column].plot([size for size, _, _ in known], [ms for _, _, ms in known], color=colour,
                                  linewidth=1.1)
        plots[0][column].plot(slices, slices, color="black", linewidth=0.8, linestyle=":")
        plots[0][column].set_title(f"batch {batch}")
        plots[1][column].set_yscale("log")
        plots[1][column].set_xlabel("slices")
        plots[1][column].set_xticks(slices)
    plots[0][0].set_ylabel("throughput, slices' worth")
    plots[1][0].set_ylabel("latency, ms")
    plots[0][-1].legend(loc="center left", bbox_to_anchor=(1, 0.5), fontsize=7)
    pictures.save(drawing, setup.results.plot("mig_instances"))


def draw_partitions(setup, models):
    drawing, plots = pictures.figure(2, 1, width=9, height=4.8, sharex=True)
    order = sorted(PARTITIONS, key=lambda partition: statistics.mean(
        partition_throughput(models, model, partition) / partition_throughput(models, model, "7")
        for model in models.models))
    for place, model in enumerate(models.models):
        whole = partition_throughput(models, model, "7")
        style = {"color": pictures.MODEL_COLOURS[place], "marker": "o", "markersize": 3, "linewidth": 0.9}
        plots[0].plot(order, [partition_throughput(models, model, one) / whole for one in order], label=model, **style)
        plots[1].plot(order, [partition_latency(models, model, one) for one in order], **style)
    plots[0].set_ylabel("throughput, of 7/7's")
    plots[1].set_ylabel("weighted latency, ms")
    plots[1].set_yscale("log")
    plots[1].tick_params(axis="x", rotation=35)
    plots[0].legend(loc="center left", bbox_to_anchor=(1, 0.5), fontsize=7)
    pictures.save(drawing, setup.results.plot("mig_partitions"))


class Measured:
    """What the claims need."""

    def __init__(self, models, counts, plans):
        self.counts = counts
        self.saved = saved_of(plans)
        rates = partition_spread(models, partition_throughput)
        self.densenet121_spread = rates["densenet121"]
        self.most_spread = max(rates.items(), key=lambda item: item[1])
        self.latency_spread = max(partition_spread(models, partition_latency).items(), key=lambda item: item[1])
        self.small_over_whole = {model: partition_throughput(models, model, "1-1-1-1-1-1-1")
                                 / partition_throughput(models, model, "7") for model in models.models}


def run(setup):
    models = MeasuredModels()
    scenarios = published(setup, models)
    common = ("gpulet schedule --cluster CLUSTER (a100-80, no 3g beside 4g, processes_per_instance) "
              f"--profiles {PROFILES} --demand DEMAND --policy POLICY {' '.join(AS_PUBLISHED)} --json")
    plans_csv(setup, "mig_measured.csv", f"each row: {common}; DEMAND: {MEASURED}/demands.csv, rates times SCALE, "
              "slo_ms times 2 PART, because a plan allows a batch half of the objective",
              ["setting", "scenario", "scale", "part", "processes"], scenarios)
    published_tables(setup, scenarios)
    plans = at_100_ms(setup, models)
    plans_csv(setup, "mig_measured_100.csv", f"each row: {common}; DEMAND: needs in whole devices by the workload's "
              f"distribution, slo_ms {2 * SLO_MS:g} (reading paper) or {SLO_MS:g} (half), max_batch CAP",
              ["reading", "cap", "workload"], plans)
    at_100_ms_table(setup, plans)
    draw_saved(setup, plans)
    counts = kinds_table(setup, models)
    draw_instances(setup, models)
    draw_partitions(setup, models)
    return Measured(models, counts, plans)
