"""Runs the project's programs in parallel and reports progress."""
import json
import os
import shlex
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor, as_completed

from choices import raised

TELL_EVERY_S = 10
# Equal batches do not take equal times: a coefficient of variation of simulated batches.
NOISE = 0.05
# One program runs per core, so its linear algebra must not start threads.
ENVIRONMENT = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}


class ProgramFailed(Exception):
    """A command failed; the text has the command and its output."""


def run_json(command, may_be_unschedulable=False):
    """The JSON document that a command prints. `gpulet schedule` also prints one if it exits with 1 because its plan
    leaves some demand unserved."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=ENVIRONMENT)
    is_plan = may_be_unschedulable and done.returncode == 1 and done.stdout
    if done.returncode != 0 and not is_plan:
        raise ProgramFailed(f"{shlex.join(map(str, command))}\nended with {done.returncode}: {done.stderr.strip()}")
    return json.loads(done.stdout)


class Progress:
    """Reports progress and the remaining time of a study on stderr."""

    def __init__(self, study, total):
        self.study, self.total, self.done = study, total, 0
        self.began = self.told = time.monotonic()

    def add(self, weight):
        self.done += weight
        now = time.monotonic()
        if now - self.told < TELL_EVERY_S or self.done >= self.total:
            return
        self.told = now
        took = now - self.began
        left = took / self.done * (self.total - self.done)
        print(f"    {self.study}: {100 * self.done / self.total:3.0f} %, {took:.0f} s, about {left:.0f} s left",
              file=sys.stderr, flush=True)


class Runner:
    """Calls functions that run commands in parallel. Results are in the order of the work."""

    def __init__(self, jobs=0):
        self.jobs = jobs or len(os.sched_getaffinity(0))

    def map(self, study, work, items, weight=lambda item: 1):
        """[work(item) for item in items]; the heavy ones start first, so that none runs alone at the end."""
        progress = Progress(study, sum(weight(item) for item in items))
        results = [None] * len(items)
        with ThreadPoolExecutor(self.jobs) as pool:
            order = sorted(range(len(items)), key=lambda index: (-weight(items[index]), index))
            running = {pool.submit(work, items[index]): index for index in order}
            try:
                for finished in as_completed(running):
                    index = running[finished]
                    results[index] = finished.result()
                    progress.add(weight(items[index]))
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise
        return results


class Planner:
    """`gpulet schedule` and `gpulet simulate` for one cluster, one set of profiles and one demand."""

    def __init__(self, gpulet, scene, options=()):
        self.gpulet, self.scene, self.options = gpulet, scene, tuple(options)

    def command(self, verb, choice, *more):
        return [str(self.gpulet), verb, "--cluster", self.scene.cluster, "--profiles", self.scene.profiles,
                "--demand", self.scene.demand, *choice.flags(), *self.options, *map(str, more), "--json"]

    def schedule_scenarios(self, choice, scenarios):
        planned = raised(scenarios) if choice.setting == "shipped" else scenarios
        return run_json(self.command("schedule", choice, "--scenarios", planned))

    def simulate_scenarios(self, choice, scenarios, seconds, seed, more=()):
        """Plans for each row and offers its rates."""
        planned = ["--scenarios", scenarios]
        if choice.setting == "shipped":
            planned = ["--scenarios", raised(scenarios), "--offered", scenarios]
        return run_json(self.command("simulate", choice, *planned, "--seconds", seconds, "--seed", seed, "--noise", NOISE,
                                     "--jobs", 1, *more))

    def simulate_trace(self, choice, trace, series, seconds, seed, more=()):
        return run_json(self.command("simulate", choice, "--trace", trace, "--series", series, "--seconds", seconds,
                                     "--seed", seed, "--noise", NOISE, *more))
