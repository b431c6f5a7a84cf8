#!/usr/bin/python3
"""Fits the plant of the study roma to table 2's rows RR+max and RR+min, and stores it in roma_plant.json.

    scripts/experiments.d/roma_fit.py --gpulet build/release/bin/gpulet [--work build/roma_fit] [--jobs N]

The paper states no duration of a request. Free are the milliseconds of a GPU and the core-seconds of a CPU of each model:
eight parameters. The floor of every response is a constant of each start: 0.12 s, and 0 for comparison. So is the number of
requests that an instance on a CPU runs together: one in the first three starts; two and sixteen in the others, because TensorFlow
Serving runs requests concurrently and the paper states no limit. The residuals of each
of the six rows, by windows of ten seconds, are the logarithm of the ratio of the means, half the logarithm of the ratio of the
maxima, and a hundredth of the difference of the violations: eighteen. The standard deviations are left out: table 2's cannot
be those of the values that it counts (see the page). The cost is the root of the mean square of the residuals.

The search is a hill climb in the logarithms of the parameters: a step changes up to three of them by normally distributed
amounts; their size grows after a success and shrinks otherwise. The first three plants of STARTS are those of longer climbs of
the same kind on a simplified simulator without the engine, the others the best of these; each start has its own seed. Simulations use two seeds. The rows ROMA, RR+CT
and RR+rules are never looked at. It takes about five minutes on two cores.
"""
import argparse
import json
import math
import random
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import fmean

from roma_setup import FITTED_SYSTEMS, PAPER, PLANTS, SLO_MS, SYSTEMS, TESTS, Plant, Scene

SEEDS = (1, 2)
WINDOW_S = 10
EVALUATIONS = 32
# An upper limit: about what VGG16, the largest of the models, takes of a core.
MOST_CORE_S = 1.0
FIRST_STEP, LARGEST_STEP, SMALLEST_STEP = 0.1, 0.5, 0.01


def start(floor_s, gpu_ms, core_s, requests_at_once=1):
    return Plant(floor_s, dict(zip(SLO_MS, gpu_ms)), dict(zip(SLO_MS, core_s)), requests_at_once)


STARTS = (
    start(0.12, (26.1, 2.6, 17.7, 44.1), (0.155, 0.642, 0.947, 1.0)),
    start(0.12, (13.4, 15.6, 30.8, 34.6), (0.043, 0.483, 0.989, 1.0)),
    start(0, (25.4, 5.65, 14.1, 52.2), (0.22, 1.0, 0.0423, 1.0)),
    start(0.12, (20.9, 1.21, 19.8, 44.0), (0.052, 0.298, 0.847, 0.876), 2),
    start(0.12, (256, 1.53, 22.7, 103), (0.0129, 0.0111, 0.013, 0.0606), 16),
)


def vector_of(plant):
    return [math.log(value) for value in (*plant.gpu_ms.values(), *plant.core_s.values())]


def plant_of(like, vector):
    """Rounded to three digits, so that the file states what was simulated. `like`: its constants."""
    values = [float(f"{math.exp(value):.3g}") for value in vector]
    return start(like.floor_s, values[:4], values[4:], like.requests_at_once)


def residuals(paper, figures):
    """`figures`: those of all seeds."""
    mean, most, violations = (fmean(one[key] for one in figures) for key in ("mean_s", "most_s", "violations"))
    return [math.log(mean / paper.mean_s), math.log(most / paper.most_s) / 2, (violations - paper.violations) / 100]


class Search:
    def __init__(self, gpulet, work):
        self.gpulet, self.work = gpulet, Path(work)
        self.known = {}

    def scene(self, plant):
        """Threads simulate different plants, each in its own folder."""
        folder = self.work / f"thread-{threading.get_ident()}"
        return Scene(folder, self.gpulet, plant)

    def of_test(self, plant, test):
        """The residuals of a test; they depend on the parameters of its models alone."""
        key = (test, plant.floor_s, plant.requests_at_once, *((plant.gpu_ms[model], plant.core_s[model]) for model in TESTS[test]))
        if key not in self.known:
            scene = self.scene(plant)
            self.known[key] = [value for system in FITTED_SYSTEMS for value in residuals(
                PAPER[test, system], [scene.simulate(test, SYSTEMS[system], seed, system).figures(WINDOW_S)
                                      for seed in SEEDS])]
        return self.known[key]

    def cost(self, plant):
        values = [value for test in TESTS for value in self.of_test(plant, test)]
        return math.sqrt(fmean(value * value for value in values))

    def climb(self, number):
        chance = random.Random(f"roma {number}")
        begin = STARTS[number]
        best = vector_of(begin)
        least, step = self.cost(plant_of(begin, best)), FIRST_STEP
        for evaluation in range(EVALUATIONS):
            tried = list(best)
            for at in chance.sample(range(len(tried)), chance.randint(1, 3)):
                tried[at] += chance.gauss(0, step)
            tried[4:] = [min(value, math.log(MOST_CORE_S)) for value in tried[4:]]
            cost = self.cost(plant_of(begin, tried))
            if cost < least:
                best, least, step = tried, cost, min(LARGEST_STEP, step * 1.5)
            else:
                step = max(SMALLEST_STEP, step * 0.93)
            if evaluation % 4 == 3:
                print(f"start {number}: {evaluation + 1} evaluations, cost {least:.4f}", flush=True)
        return least, plant_of(begin, best)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpulet", type=Path, required=True)
    parser.add_argument("--work", type=Path, default=Path("build/roma_fit"))
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    search = Search(options.gpulet.resolve(), options.work)
    with ThreadPoolExecutor(options.jobs) as pool:
        found = list(pool.map(search.climb, range(len(STARTS))))
    # The plants with the floor first, and of these the best one; those that share their cores last.
    found.sort(key=lambda one: (one[1].requests_at_once, -one[1].floor_s, one[0]))
    PLANTS.write_text(json.dumps({
        "made_by": "scripts/experiments.d/roma_fit.py", "seeds": SEEDS, "evaluations": EVALUATIONS,
        "costs": [round(cost, 4) for cost, _ in found], "plants": [plant.document() for _, plant in found]},
        indent=1) + "\n", encoding="utf-8")
    for cost, plant in found:
        print(f"{cost:.4f} {plant}")


if __name__ == "__main__":
    main()
