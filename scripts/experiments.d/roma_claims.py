"""The claims of ROMA's section 5 and abstract against table 2 and against the study.

The paper states neither how long requests take nor how a CPU runs them, so each claim is judged with every fitted plant. A
verdict is given where all plants agree; otherwise the study cannot test the claim.
"""
import math
from dataclasses import dataclass
from statistics import fmean

from roma_figures import WINDOW_S, counting_is_consistent, impossible_deviation
from roma_fit import SEEDS, residuals
from roma_setup import FITTED_SYSTEMS, PAPER, PUBLISHED_GAINS, SYSTEMS, TESTS
from verdicts import NOT_TESTABLE, all_hold, more

STUDY = "roma"
COMPETITORS = tuple(system for system in SYSTEMS if system != "ROMA")
FIRST, SECOND, ALL = TESTS
REDUCTION = 0.75
DYNAMIC = ("RR+CT", "RR+rules")
# RR+rules that never return a core are RR+max by another name: a claim about their cores or violations says nothing.
NEVER_RETURNS = 0.99  # of the core-seconds of RR+max, in all tests


@dataclass(frozen=True)
class Judged:
    """A claim with one plant. `baseline`: what ROMA is compared with."""
    claim: str
    paper: str
    ours: str
    baseline: str
    verdict: str


class PaperTable:
    """Table 2 with the interface that the claims use."""

    def violations(self, test, system):
        return PAPER[test, system].violations

    def core_s(self, test, system):
        return PAPER[test, system].core_s

    def mean_s(self, test, system):
        return PAPER[test, system].mean_s

    def most_s(self, test, system):
        return PAPER[test, system].most_s


class OurTable:
    def __init__(self, outcomes):
        self.outcomes = outcomes

    def violations(self, test, system):
        return self.outcomes.violations(test, system, WINDOW_S)

    def core_s(self, test, system):
        return self.outcomes.mean(test, system, "core_seconds")

    def mean_s(self, test, system):
        return self.outcomes.mean(test, system, "mean_s")

    def most_s(self, test, system):
        return self.outcomes.mean(test, system, "most_s_of_tens")


def total(table, system):
    return sum(table.violations(test, system) for test in TESTS)


def reduction(table, system):
    """The part of a system's violations that ROMA does not have; None where the system has none."""
    return 1 - total(table, "ROMA") / total(table, system) if total(table, system) else None


def reductions(table):
    return {system: reduction(table, system) for system in COMPETITORS}


def in_words(found):
    return ", ".join(f"{system} {'–' if part is None else f'{100 * part:.0f} %'}" for system, part in found.items())


def saving(table, systems, tests=TESTS):
    """The mean over tests and systems of the part of the core-seconds that ROMA saves."""
    return fmean(1 - table.core_s(test, "ROMA") / table.core_s(test, system) for test in tests for system in systems)


def rules_return_cores(outcomes):
    ours = OurTable(outcomes)
    return any(ours.core_s(test, "RR+rules") < NEVER_RETURNS * ours.core_s(test, "RR+max") for test in TESTS)


def judged(outcomes, systems, verdict):
    return NOT_TESTABLE if "RR+rules" in systems and not rules_return_cores(outcomes) else verdict


def of_reductions(outcomes):
    paper, ours = reductions(PaperTable()), reductions(OurTable(outcomes))
    # Against a system without violations nothing can be reduced.
    least = min(0.0 if part is None else part for part in ours.values())
    return Judged("ROMA reduces violations by more than 75 % (abstract); over all tests, against each system (ours: the least)",
                  in_words(paper), f"{100 * least:.0f} %", ", ".join(COMPETITORS), more(least, REDUCTION))


def of_savings(outcomes):
    rows = []
    for text, systems, tests in (("all tests", ("RR+CT",), TESTS), ("all tests", ("RR+rules",), TESTS),
                                 ("all tests", ("RR+max",), TESTS), ("all tests", (*DYNAMIC, "RR+max"), TESTS),
                                 ("AllApps alone", (*DYNAMIC, "RR+max"), (ALL,))):
        paper, ours = saving(PaperTable(), systems, tests), saving(OurTable(outcomes), systems, tests)
        stated = "24 % (abstract); " if len(systems) > 1 else ""
        rows.append(Judged(f"ROMA saves CPU resources, {text}", f"{stated}{100 * paper:.1f} % by table 2",
                           f"{100 * ours:.1f} %", ", ".join(systems), judged(outcomes, systems, more(ours, paper))))
    return rows


def no_violations(outcomes, name, test):
    """Of three runs each: whether none of them has one."""
    each = [outcomes.values[test, "ROMA", seed]["violations_by_tens"] for seed in outcomes.seeds]
    return Judged(f"{name}: ROMA has no violations", f"{PAPER[test, 'ROMA'].violations}",
                  " ".join(f"{one:.0f}" for one in each), "none", all_hold(one == 0 for one in each))


def of_excess(outcomes, text, test, system):
    """How many more violations a system has than ROMA."""
    tables = (PaperTable(), OurTable(outcomes))
    pairs = [(table.violations(test, system), table.violations(test, "ROMA")) for table in tables]
    paper, ours = (one - other for one, other in pairs)
    return Judged(f"{text}: violations of {system} / of ROMA", *(f"{one:.0f} / {other:.0f}" for one, other in pairs),
                  system, judged(outcomes, (system,), more(ours, paper)))


def of_ratio(outcomes, text, test, system, figure):
    """A figure of a system over ROMA's; at 1 or below it shows the opposite."""
    paper, ours = (getattr(table, figure)(test, system) / getattr(table, figure)(test, "ROMA")
                   for table in (PaperTable(), OurTable(outcomes)))
    return Judged(text, f"{paper:.2f} by table 2", f"{ours:.2f}", system,
                  judged(outcomes, (system,), more(ours, paper, 1)))


def rows_of(outcomes):
    """The claims with one plant."""
    return [
        of_reductions(outcomes), *of_savings(outcomes),
        no_violations(outcomes, "First test", FIRST),
        of_ratio(outcomes, "First test: core-seconds of RR+rules, 1.5 times ROMA's", FIRST, "RR+rules", "core_s"),
        of_ratio(outcomes, "First test: RR+CT has a longer mean response time than ROMA", FIRST, "RR+CT", "mean_s"),
        of_ratio(outcomes, "First test: RR+CT has a longer maximum response time than ROMA", FIRST, "RR+CT", "most_s"),
        of_ratio(outcomes, 'First test: core-seconds of RR+max, "more than 5 times" ROMA\'s', FIRST, "RR+max", "core_s"),
        of_excess(outcomes, "Second test: round robin is not enough even with all cores", SECOND, "RR+max"),
        of_ratio(outcomes, "Second test: the mean response time of RR+CT, almost double ROMA's", SECOND, "RR+CT", "mean_s"),
        of_excess(outcomes, "Second test", SECOND, "RR+CT"), of_excess(outcomes, "Second test", SECOND, "RR+rules"),
        no_violations(outcomes, "AllApps", ALL),
        of_excess(outcomes, "AllApps", ALL, "RR+CT"), of_excess(outcomes, "AllApps", ALL, "RR+rules"),
        of_ratio(outcomes, "AllApps: the mean response time of RR+max with its 3,600 core-seconds, over ROMA's", ALL, "RR+max",
                 "mean_s"),
        of_ratio(outcomes, "AllApps: the largest mean of RR+rules over ROMA's", ALL, "RR+rules", "most_s"),
    ]


def cost_of_fit(outcomes):
    """How far the fitted rows are from table 2's, as in the fit."""
    seeds = [seed for seed in outcomes.seeds if seed in SEEDS]
    values = [value for test in TESTS for system in FITTED_SYSTEMS for value in residuals(
        PAPER[test, system], [outcomes.runs[test, system, seed].figures(WINDOW_S) for seed in seeds])]
    return math.sqrt(fmean(value * value for value in values))


def over_plants(verdicts):
    """The verdict of all plants, if they agree."""
    return verdicts[0] if len(set(verdicts)) == 1 else NOT_TESTABLE


def write_claims(results, outcomes):
    """`outcomes`: with each plant."""
    plants = [f"plant {number}" for number in range(1, len(outcomes) + 1)]
    columns = ["claim of the paper", "the paper", f"ours, plants 1 to {len(plants)}", "data", "baseline", "verdict", "study"]
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    by_plant = []
    for claim in zip(*(rows_of(one) for one in outcomes)):
        first, verdicts = claim[0], [one.verdict for one in claim]
        ours = "; ".join(one.ours for one in claim)
        lines.append(f"| {first.claim} | {first.paper} | {ours} | table 1, fitted plants | {first.baseline} | "
                     f"**{over_plants(verdicts)}** | `--only {STUDY}` |")
        by_plant.append([f"{first.claim}; baseline {first.baseline}", *verdicts])
    results.tables[f"claims-{STUDY}"] = "\n".join(lines)
    results.table("roma-verdicts", ["claim", *plants], by_plant)


def write(results, outcomes, others):
    write_claims(results, (outcomes, *others))
    for number, one in enumerate((outcomes, *others), start=1):
        results.value(f"roma-cost-{number}", f"{cost_of_fit(one):.2f}")
    held, count = counting_is_consistent()
    results.value("roma-counting", f"{held} of {count}")
    results.value("roma-k", f"K = {PUBLISHED_GAINS['cores_per_s']}, a = {PUBLISHED_GAINS['zero']}")
    impossible_deviation(results)
    for name, system in (("rules", "RR+rules"), ("rules-unseen", "RR+rules, floor not seen")):
        results.value(f"roma-{name}-cores", " / ".join(f"{outcomes.mean(test, system, 'core_seconds'):.0f}"
                                                       for test in TESTS))
    for test, key in ((FIRST, "first"), (SECOND, "second"), (ALL, "all")):
        for system in ("ROMA", "ROMA, floor not seen", "ROMA, w = 10 s", "ROMA, K and a of the paper"):
            name = {"ROMA": "", "ROMA, floor not seen": "-unseen", "ROMA, w = 10 s": "-w10",
                    "ROMA, K and a of the paper": "-published"}[system]
            results.value(f"roma-above-{key}{name}", f"{outcomes.violations(test, system, 1):.0f}")
            results.value(f"roma-tens-{key}{name}", f"{outcomes.violations(test, system, WINDOW_S):.0f}")
            results.value(f"roma-cores-{key}{name}", f"{outcomes.mean(test, system, 'core_seconds'):.0f}")
