"""Why InSS cannot place eight models on four devices: what models need alone, and what believed interference adds."""
import itertools
import json
from dataclasses import dataclass

import ladder
from inss_setup import CONTEXT_MB, EIGHT, FAST, MEMORY_MB, PEAK_OF_SUM, SIX, SIZES, SLOW, WEIGHTS_MB, Setup
from program import run_json

NAME = "inss_placing"
DEVICES = (FAST, SLOW, FAST, SLOW)
# What a plan adds to a model's need, one after the other.
SETTINGS = {"mean rates, measured latencies": ("--headroom", "none", "--margin", "1"),
            "with the margin": ("--headroom", "none"),
            "with headroom for random arrivals": ()}
# Two that give a model gpulets of its own, as InSS does, and elastic, whose gpulets models may share.
PLACED_POLICIES = ("igniter", "guided-self-tuning", "elastic")
PLACED_SETTINGS = {"mean rates": ("--headroom", "none", "--margin", "1"), "headroom": ()}
PLACED_LOADS = [step / 20 for step in range(2, 41)]
LOADS = (0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 1.0, 1.05, 1.1, 1.2)  # of PEAK_OF_SUM of the highest rates


@dataclass(frozen=True)
class Needs:
    """The smallest share of each type that holds a model's rate without neighbours; None: not even a whole device."""
    shares: dict   # (model, type, load) -> percent


def holds(setup, models, kind, size, flags):
    """{(model, load): whether one gpulet of that size holds the rate}."""
    cluster = setup.files.write(f"placing/{kind}-{size}.json", json.dumps({"nodes": [{"name": "n0", "devices": [
        {"type": kind, "count": 1, "partitioning": "simulated", "sizes": [size], "max_partitions": 1,
         "memory_mb": MEMORY_MB[kind]}]}]}))
    demand = setup.demand(f"placing-{len(models)}", setup.highest[models])
    asked = [(model, load) for model in models for load in LOADS]
    rows = [",".join(f"{load * PEAK_OF_SUM * setup.highest[models][model]:.6g}" if one == model else "0" for one in models)
            for model, load in asked]
    scenarios = setup.files.write(f"placing/{len(models)}.csv", "\n".join([",".join(models), *rows]) + "\n")
    document = run_json([str(setup.gpulet), "schedule", "--cluster", str(cluster), "--profiles", str(setup.profiles),
                         "--demand", str(demand), "--policy", "sbp", "--interference", "none", *flags, "--scenarios",
                         str(scenarios), "--json"])
    return dict(zip(asked, document["rows"]))


def needs(setup, models, flags):
    cells = [(kind, size) for kind in (FAST, SLOW) for size in SIZES]
    answers = dict(zip(cells, setup.runner.map("inss, placing", lambda cell: holds(setup, models, *cell, flags), cells)))
    return Needs({(model, kind, load): next((size for size in SIZES if answers[kind, size][model, load]), None)
                  for model in models for kind in (FAST, SLOW) for load in LOADS})


def fits(models, share_of):
    """Whether some assignment of models to DEVICES keeps to shares and memory. share_of(model, type): percent or None."""
    memory = {model: CONTEXT_MB + WEIGHTS_MB[model] for model in models}
    for assigned in itertools.product(range(len(DEVICES)), repeat=len(models)):
        used, held = [0] * len(DEVICES), [0] * len(DEVICES)
        for model, device in zip(models, assigned):
            share = share_of(model, DEVICES[device])
            used[device] += share if share is not None else 1000
            held[device] += memory[model]
        if all(percent <= 100 for percent in used) and all(mb <= MEMORY_MB[kind] for mb, kind in zip(held, DEVICES)):
            return True
    return False


def highest_that_fits(models, found):
    """The highest of LOADS at which each model fits with one gpulet; 0 where none does."""
    highest = 0.0
    for load in LOADS:
        if not fits(models, lambda model, kind, at=load: found.shares[model, kind, at]):
            break
        highest = load
    return highest


def highest_placed(setup, models, policy, interference, flags):
    """The highest of PLACED_LOADS below the first that the policy cannot place on four devices; 0: not even the lowest."""
    rows = [",".join(f"{load * PEAK_OF_SUM * setup.highest[models][model]:.6g}" for model in models)
            for load in PLACED_LOADS]
    scenarios = setup.files.write(f"placing/ladder-{len(models)}.csv", "\n".join([",".join(models), *rows]) + "\n")
    demand = setup.demand(f"placing-{len(models)}", setup.highest[models])
    document = run_json([str(setup.gpulet), "schedule", *setup.planning(demand, 4), "--policy", policy, "--interference",
                         interference, *flags, "--scenarios", str(scenarios), "--json"])
    return ladder.below_first_failure(0.0, PLACED_LOADS, document["rows"])


def table_of_policies(setup):
    """Whether believed interference or headroom keeps policies with one gpulet per model from placing eight models."""
    settings = [(interference, name) for interference in ("none", "learned") for name in PLACED_SETTINGS]
    cells = [(models, policy, *setting) for models in (SIX, EIGHT) for policy in PLACED_POLICIES for setting in settings]
    highest = setup.runner.map("inss, placing by policies", lambda cell: highest_placed(
        setup, *cell[:3], PLACED_SETTINGS[cell[3]]), cells)
    found = dict(zip(cells, highest))
    setup.results.csv("inss_placed.csv", [f"scripts/experiments --only {NAME}",
                                          "gpulet schedule --policy POLICY --interference INTERFERENCE --scenarios LADDER"],
                      ["models", "policy", "interference", "setting", "highest_load"],
                      [[len(models), *cell, load] for (models, *cell), load in found.items()])
    setup.results.table("inss_placed", ["models and policy", *(f"interference {interference}, {name}"
                                                               for interference, name in settings)],
                        [[f"{len(models)} models, `{policy}`", *(f"{found[models, policy, *setting]:g}"
                                                                 for setting in settings)]
                         for models in (SIX, EIGHT) for policy in PLACED_POLICIES])


def run(measured, runner, results, quick):
    setup = Setup(measured, runner, results, quick)
    lines, rows = [], []
    for models in (SIX, EIGHT):
        for name, flags in SETTINGS.items():
            found = needs(setup, models, flags)
            at_one = [found.shares[model, FAST, 1.0] for model in models]
            least = "–" if None in at_one else f"{sum(at_one)} %"
            lines.append([f"{len(models)} models, {name}", least, f"{highest_that_fits(models, found):g}"])
            rows += [[len(models), name, model, kind, load, share if share is not None else ""]
                     for (model, kind, load), share in found.shares.items()]
    setup.results.csv("inss_placing.csv", [f"scripts/experiments --only {NAME}",
                                           "gpulet schedule --policy sbp --interference none --scenarios ... on one device "
                                           "with one size"],
                      ["models", "setting", "model", "device_type", "load", "least_share_percent"], rows)
    setup.results.table("inss_placing", ["models and setting", f"sum of least shares ({FAST}), load 1",
                                         "highest load that fits on four devices"], lines)
    table_of_policies(setup)
