"""All studies, in the order in which they run.

A study is a module of that name with NAME and run(measured, runner, results, quick). Its figures depend on a group of
sources (sources.py).
"""
import importlib

SOURCES_OF = {"neighbours": "measurements", "schedulable": "plans", "throughput": "simulations", "violations": "simulations", "waves": "simulations",
              "against_ideal": "plans", "planning_time": "plans"}


def load(name):
    return importlib.import_module(name)
