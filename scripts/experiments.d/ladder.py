"""Finds the highest load that holds with ladders of decreasing steps: on each, the rung below the first failure.

The papers raise the rates until something fails; so does this, in few steps. Where holding is not monotonic in the
load, that is the first failure seen, not the highest load that happens to hold.
"""
LOWEST = 25.0               # requests per second of all models together
DOUBLINGS = 11              # up to 25,600
PARTS = (8, 8, 4)           # rungs of each bracket in turn; the last one is 0.27 % wide


def first_ladder():
    return [LOWEST * 2**step for step in range(DOUBLINGS)]


def between(low, ratio, parts):
    """The rungs inside a bracket from low to low * ratio."""
    return [low * ratio ** (step / parts) for step in range(1, parts)]


def below_first_failure(low, rungs, holds):
    """The highest rung before the first that fails; `low` if that is the first one."""
    for rung, good in zip(rungs, holds):
        if not good:
            return low
        low = rung
    return low


def highest_scales(workloads, holds):
    """For each workload the highest scale; 0 where not even the lowest holds.

    holds([(workload, scale)]) -> [bool] is asked once a ladder, for all workloads together.
    """
    ladders = [first_ladder() for _ in workloads]
    highest = [0.0] * len(workloads)
    ratio = 2.0
    for parts in (*PARTS, None):
        asked = [(workload, scale) for workload, ladder in zip(workloads, ladders) for scale in ladder]
        answers = iter(holds(asked) if asked else [])
        for index, ladder in enumerate(ladders):
            highest[index] = below_first_failure(highest[index], ladder, [next(answers) for _ in ladder])
        if parts:
            ladders = [between(low, ratio, parts) if low else [] for low in highest]
            ratio **= 1 / parts
    return highest
