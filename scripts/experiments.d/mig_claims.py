"""MIG-serving's claims beside the study's figures."""
import statistics

from mig_devices import LARGEST_BATCH, PRINTED, PROCESSES, relative_costs
from mig_measured import PARTITION_BATCH
from mig_setup import CAPS, NAMES, WORKLOADS
from verdicts import all_hold, less, more

STUDY = "mig"
GENERATED = "24 generated models"
MEASURED = "eleven models on an A100, MIG"
PAPERS_SAVING = 40  # percent, at most


def saving(text, saved, with_small_batches, data):
    """The verdict is that of the paper's setting, whose batches have up to 32 requests."""
    return (text, f"up to {PAPERS_SAVING} %", f"up to {max(saved):.1f} %; batches of at most {CAPS[0]}: "
            f"{max(with_small_batches):.1f} %", data, "7/7", more(max(saved), PAPERS_SAVING))


def device_claims(devices, measured):
    papers = devices.papers

    def of_models(cap):
        return [one.saved(load) for one in devices.of("settings", reading="paper", cap=cap) for load in WORKLOADS]

    def of_sub_linear(cap):
        return [one.saved(load) for one in devices.of("sweep", reading="paper", cap=cap, part=1.0) for load in one.workloads]

    def of_measured(cap):
        return measured.saved["paper", cap]["mig-two-phase"]

    rows = [saving(text, of(LARGEST_BATCH), of(CAPS[0]), data) for text, of, data in (
        ("saves GPUs (section 8.1, figure 9), 12 of 24 models sub-linear", of_models, GENERATED),
        ("the same, only sub-linear models", of_sub_linear, GENERATED),
        ("the same", of_measured, MEASURED))]
    fewer = [papers.devices(load, "two-phase") < papers.devices(load, baseline)
             for load in WORKLOADS for baseline in ("whole", "7x1", "mix")]
    rows.append(("needs fewer GPUs than 7/7, 7x1/7 and 4-2-1 (figure 9)", "in all four workloads",
                 f"in {sum(fewer)} of {len(fewer)} comparisons", GENERATED, "7/7, 7x1/7, 4-2-1", all_hold(fewer)))
    above = max(papers.above(load) for load in WORKLOADS)
    of_whole = min(100 * (papers.devices(load, "whole") / papers.devices(load, "bound-without-rules") - 1)
                   for load in WORKLOADS)
    rows.append(("above the bound without MIG's rules (figure 9)", "below 3 %", f"{above:.1f} % at most",
                 GENERATED, "the bound", less(above, 3, of_whole)))
    costs = relative_costs(papers)
    t4s = ("T4", "T4, of g4dn.metal")
    rows.append(("the cheapest of 7/7, 7x1/7, T4 and MIG (figure 10)", "in all four workloads",
                 f"T4s cost {100 * min(costs[t4s[0]]):.0f} to {100 * max(costs[t4s[1]]):.0f} % of it, by price and speed",
                 GENERATED, "7/7, 7x1/7, T4", all_hold(cost >= 1 for name in (NAMES["whole"], NAMES["7x1"], *t4s) for cost in costs[name])))
    by_processes = [statistics.mean(one.saved(load) for load in WORKLOADS)
                    for one in (papers, *devices.outcomes["processes"])]
    shown = ", ".join(f"{saved:.1f} %" for saved in by_processes)
    rows.append((f"with {', '.join(map(str, PROCESSES))} processes in an instance savings shrink (figure 11)", "yes", shown, GENERATED, "7/7",
                 all_hold(before > after for before, after in zip(by_processes, by_processes[1:]))))
    rows.append((f"saving with {PROCESSES[-1]} processes in an instance (figure 11)", "about 10 %",
                 f"{by_processes[-1]:.1f} %", GENERATED, "7/7", more(by_processes[-1], 10)))
    gains = [one.gain(load) for one in devices.of("searches", reading="paper", cap=LARGEST_BATCH) for load in WORKLOADS]
    printed = [[one.gain(load, PRINTED) for load in WORKLOADS] for one in devices.outcomes["printed"]]
    means = [statistics.mean(gains) for gains in printed]
    rows.append(("ten rounds of genetic algorithm and tree search save beside greedy (figure 12), as printed", "1 to 3 %",
                 f"{min(means):.2f} to {max(means):.2f} % in the mean of the workloads (three seeds), "
                 f"{max(map(max, printed)):.2f} % at most", GENERATED, "the printed greedy algorithm",
                 more(min(means), 1)))
    rows.append(("the same with our algorithms", "1 to 3 %",
                 f"{statistics.mean(gains):.2f} % in the mean, {max(gains):.2f} % at most", GENERATED, "our greedy algorithm",
                 more(statistics.mean(gains), 1)))
    return rows


def measured_claims(measured):
    better = [part >= 1 for part in measured.small_over_whole.values()]
    count = len(better)
    batches = list(measured.counts)
    non_linear = [counts["sub-linear"] + counts["super-linear"] for counts in measured.counts.values()]
    first, last = (measured.counts[batch]["sub-linear"] for batch in (batches[0], batches[-1]))
    return [(f"7x1/7 costs less a request than 7/7 for every model (figure 1), at batch {PARTITION_BATCH}", "all models",
             f"{sum(better)} of {count}", MEASURED, "7/7", all_hold(better)),
            ("most models do not grow linearly (section 2.2, figure 4)", "the majority",
             f"{min(non_linear)} to {max(non_linear)} of {count}, by batch", MEASURED, "–",
             all_hold(2 * number > count for number in non_linear)),
            ("larger batches make fewer models sub-linear (figure 4)", "yes",
             f"{first} at batch {batches[0]}, {last} at {batches[-1]}", MEASURED, "–", all_hold([last < first])),
            ("partitions of one GPU differ in throughput, densenet121 (section 2.2, figure 3b)", "up to 4 times",
             f"{measured.densenet121_spread:.1f} times; {measured.most_spread[0]}: {measured.most_spread[1]:.1f}", MEASURED, "the slowest partition",
             more(measured.densenet121_spread, 4, 1)),
            ("partitions of one GPU differ in latency (section 2.2, xlnet-large-cased)", "up to 8 times",
             f"{measured.latency_spread[1]:.1f} times ({measured.latency_spread[0]})", MEASURED, "the fastest partition",
             more(measured.latency_spread[1], 8, 1))]


def transition_claims(transitions):
    first = {one.name: one for one in transitions if one.site == "the paper's size"}
    down, up = first["day2night"].counts, first["night2day"].counts
    kept = [one.kept for one in transitions]
    return [("day2night deletes more, night2day creates and repartitions more (figure 13b)", "yes",
             f"{down['removed']} and {up['removed']} deletions, {down['created']} and {up['created']} creations, "
             f"{down['repartitions']} and {up['repartitions']} repartitions", MEASURED, "the other direction",
             all_hold([down["removed"] > up["removed"], up["created"] > down["created"],
                       up["repartitions"] > down["repartitions"]])),
            ("during a transition a service keeps the smaller of its two required throughputs (section 1)", "always",
             f"{100 * min(kept):.1f} % of it at least", MEASURED, "–", all_hold(part >= 1 - 1e-9 for part in kept))]


def run(setup, devices, measured, transitions):
    rows = [*device_claims(devices, measured), *measured_claims(measured), *transition_claims(transitions)]
    setup.results.claims(f"claims-{STUDY}", [(*row, STUDY) for row in rows])
