"""All studies, in the order in which they run.

A study is a module of that name with NAME and run(measured, runner, results, quick). Its figures depend on a group of
sources (sources.py).
"""
import importlib

SOURCES_OF = {"neighbours": "measurements", "reconstructed": "plans", "by_data": "simulations", "schedulable": "plans",
              "throughput": "simulations", "violations": "simulations", "waves": "simulations", "against_ideal": "plans", "planning_time": "plans",
              "mig": "plans", "mig_served": "simulations", "mig_day_night": "processes", "roma": "simulations",
              "inss": "learning", "inss_model": "plans", "inss_placing": "plans",
              # not in the papers
              "roma_spill": "simulations", "roma_processes": "processes", "actuator": "processes"}

# Programs beside gpulet without which a study is left out, unless it is named.
NEEDED_BY = {"actuator": ("bench_actuator",),
             "mig": ("bench_mig_optimise", "bench_mig_search", "bench_mig_workload"),
             "mig_day_night": ("gpulet-frontend", "gpulet-backend", "gpulet-proxy-simulated"),
             "inss": ("gpulet-train",)}


def missing(name, programs):
    """What a study needs of the folder of programs and does not find there."""
    return [program for program in NEEDED_BY.get(name, ()) if not (programs / program).is_file()]


def load(name):
    return importlib.import_module(name)
