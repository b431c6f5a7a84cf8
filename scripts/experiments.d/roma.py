"""ROMA's evaluation in the simulator: table 2 and figure 2, with a plant fitted to two of the five systems."""
from dataclasses import replace
from statistics import fmean

import roma_claims
from roma_figures import Outcomes, draw, fit_tables, table_two, values_of
from roma_setup import (FITTED_SYSTEMS, PLANTS, PREDICTED_SYSTEMS, PUBLISHED_GAINS, SYSTEMS, TESTS, Scene, fitted_plants)

NAME = "roma"
SEEDS = (1, 2, 3)
# The systems of the paper with its options, and what the paper leaves open: the window of equation 1 (ten seconds, as the
# counts of violations suggest), gains (K and a of section 5, in cores per second of error), and whether the controller sees
# the floor of the response times.
VARIANTS = {
    **SYSTEMS,
    "ROMA, K and a of the paper": {**SYSTEMS["ROMA"], "gains": PUBLISHED_GAINS},
    "ROMA, w = 10 s": {**SYSTEMS["ROMA"], "window_s": 10},
    "ROMA, w = 10 s, K and a of the paper": {**SYSTEMS["ROMA"], "window_s": 10, "gains": PUBLISHED_GAINS},
    "ROMA, floor not seen": {**SYSTEMS["ROMA"], "overhead_s": 0},
    "RR+CT, floor not seen": {**SYSTEMS["RR+CT"], "overhead_s": 0},
    "RR+rules, floor not seen": {**SYSTEMS["RR+rules"], "overhead_s": 0},
    "RR+CT, K and a of the paper": {**SYSTEMS["RR+CT"], "gains": PUBLISHED_GAINS},
    "ROMA, alpha 0.6": {**SYSTEMS["ROMA"], "set_point": 0.6},
    "ROMA, every 0.5 s": {**SYSTEMS["ROMA"], "period_s": 0.5},
}
GPU_FACTORS = (0.7, 0.8, 0.9, 1.0, 1.1)  # of the fitted times of the GPUs
GPU_SYSTEMS = ("ROMA", "RR+min")


def scaled(plant, factor):
    return replace(plant, gpu_ms={model: factor * ms for model, ms in plant.gpu_ms.items()})


def simulate(runner, scene, variants, seeds, seconds):
    """The runs of variants {name: options} of all tests."""
    wanted = [(test, name, seed) for test in TESTS for name in variants for seed in seeds]
    runs = runner.map(NAME, lambda one: scene.simulate(one[0], variants[one[1]], one[2], one[1], seconds), wanted)
    return Outcomes(dict(zip(wanted, runs)), seeds)


def gpu_sweep(measured, runner, results, plant, seeds, seconds):
    """How the systems depend on the times of the GPUs."""
    rows, lines = [], []
    for factor in GPU_FACTORS:
        scene = Scene(measured.work / f"roma-gpu-{factor:g}", measured.gpulet, scaled(plant, factor))
        outcomes = simulate(runner, scene, {name: SYSTEMS[name] for name in GPU_SYSTEMS}, seeds, seconds)
        for test in TESTS:
            rows += [[factor, test, system, *outcomes.means(test, system)] for system in GPU_SYSTEMS]
        lines.append([f"{factor:g}", *(f"{outcomes.violations(test, system, 10):.0f} / "
                                       f"{outcomes.violations(test, system, 1):.0f}"
                                       for system in GPU_SYSTEMS for test in TESTS)])
    results.csv("roma_gpu_times.csv", [f"scripts/experiments --only {NAME}", "gpulet simulate --policy roma ..., fitted "
                                       "GPU times multiplied by FACTOR"], ["factor", "test", "system", *Outcomes.COLUMNS], rows)
    results.table("roma-gpu-times", ["GPU times, of the fitted ones", *(f"{system}, {test}" for system in GPU_SYSTEMS
                                                                        for test in TESTS)], lines)


def other_plants(measured, runner, seeds, seconds):
    """The predictions with the plants that the fit found from its other starts."""
    found = []
    for number, plant in enumerate(fitted_plants()[1:], start=2):
        scene = Scene(measured.work / f"roma-plant-{number}", measured.gpulet, plant)
        found.append(simulate(runner, scene, SYSTEMS, seeds, seconds))
    return found


def run(measured, runner, results, quick):
    seeds, seconds = (SEEDS[:1], 40) if quick else (SEEDS, 300)
    plant = fitted_plants()[0]
    scene = Scene(measured.work / "roma", measured.gpulet, plant)
    outcomes = simulate(runner, scene, VARIANTS, seeds, seconds)
    others = other_plants(measured, runner, seeds, seconds)
    results.csv("roma_simulated.csv", [
        f"scripts/experiments --only {NAME}; plant: {PLANTS.name}",
        f"gpulet simulate --policy roma --control VARIANT.json --trace TEST.csv --seconds {seconds} --period 1"],
        ["plant", "test", "system", "seed", *Outcomes.COLUMNS],
        [[number, test, system, seed, *values_of(one)] for number, of_plant in enumerate([outcomes, *others], start=1)
         for (test, system, seed), one in of_plant.runs.items()])
    fit_tables(results, fitted_plants(), [outcomes, *others], FITTED_SYSTEMS)
    table_two(results, "roma-predicted", outcomes, PREDICTED_SYSTEMS, others)
    table_two(results, "roma-variants", outcomes, [name for name in VARIANTS if name not in SYSTEMS], [])
    draw(results, outcomes, seeds[0])
    gpu_sweep(measured, runner, results, plant, seeds[:1 if quick else 2], seconds)
    roma_claims.write(results, outcomes, others)
    for test in TESTS:
        print(f"    {test}: " + ", ".join(
            f"{system} {outcomes.violations(test, system, 10):.0f} s above, "
            f"{fmean(run.core_s() for run in outcomes.of(test, system)):.0f} core-seconds" for system in SYSTEMS), flush=True)
