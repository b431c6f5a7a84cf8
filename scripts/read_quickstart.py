#!/usr/bin/env python3
"""Reads the output of the gpulet command for scripts/quickstart. Standard library only.

  read_quickstart.py verdict  < load.json     exit 0 when nothing failed and the digits were read; prints the problems
  read_quickstart.py target   < frontend.json print the address that clients on this machine use
"""
import json
import sys

LEAST_ACCURACY = 0.95


def verdict(load):
    """The problems of a run of the load generator, as texts."""
    problems = []
    for model in load["models"]:
        if model["errors"]:
            problems.append(f"{model['name']}: {model['errors']} requests failed")
        if not model["served"]:
            problems.append(f"{model['name']}: nothing was served")
        if model.get("accuracy") is not None and model["accuracy"] < LEAST_ACCURACY:
            problems.append(f"{model['name']}: accuracy {model['accuracy']:.3f}, less than {LEAST_ACCURACY}")
    if not any(model.get("accuracy") is not None for model in load["models"]):
        problems.append("no model had labelled inputs")
    return problems


def target(frontend):
    """The address for clients on this machine; 0.0.0.0 becomes the loopback address."""
    host, _, port = frontend["listen"].rpartition(":")
    return f"{'127.0.0.1' if host == '0.0.0.0' else host}:{port}"


def main():
    if len(sys.argv) != 2 or sys.argv[1] not in ("verdict", "target"):
        print(__doc__, file=sys.stderr)
        return 2
    document = json.load(sys.stdin)
    if sys.argv[1] == "target":
        print(target(document))
        return 0
    problems = verdict(document)
    print("\n".join(problems) or "no errors, and the digits are read")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
