#!/usr/bin/env python3
"""Reads the output of the gpulet command for scripts/quickstart. Standard library only.

  read_quickstart.py verdict  < load.json     exit 0 when nothing failed and the digits were read; prints the problems
  read_quickstart.py target   < frontend.json print the address that clients on this machine use
  read_quickstart.py http     < frontend.json print the same for clients over HTTP
  read_quickstart.py metrics  < frontend.json print the same for the dashboard
  read_quickstart.py timely LOAD STATUS...    exit 0 when requests were answered in time and no status has a grave problem; prints the others
  read_quickstart.py --self-test
"""
import json
import sys
import unittest
from pathlib import Path

LEAST_ACCURACY = 0.95
MOST_VIOLATED = 0.02


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


def delays(load, statuses):
    """What was not in time, as texts."""
    found = []
    for model in load["models"]:
        bad = model["late"] + model["dropped"]
        if bad > MOST_VIOLATED * model["offered"]:
            found.append(f"{model['name']}: {bad} of {model['offered']} requests had no answer in time")
    problems = {problem["text"]: None for status in statuses for problem in status["problems"] if problem["grave"]}
    return found + list(problems)


class SelfTest(unittest.TestCase):
    def test_what_is_not_in_time_is_found(self):
        load = {"models": [{"name": "a", "offered": 100, "late": 1, "dropped": 1}]}
        self.assertEqual(delays(load, [{"problems": []}]), [])
        x, y, note = ({"text": text, "grave": text != "note"} for text in ("x", "y", "note"))
        self.assertEqual(len(delays(load, [{"problems": [x]}, {"problems": [x, y, note]}])), 2)
        load["models"][0]["late"] = 2
        self.assertEqual(len(delays(load, [])), 1)

    def test_failures_are_told_from_delays(self):
        load = {"models": [{"name": "a", "served": 9, "errors": 0, "accuracy": 0.99}]}
        self.assertEqual(verdict(load), [])
        load["models"][0].update(errors=1, accuracy=0.5)
        self.assertEqual(len(verdict(load)), 2)


def target(frontend, key="listen"):
    """The address for clients on this machine; 0.0.0.0 becomes the loopback address."""
    host, _, port = frontend[key].rpartition(":")
    return f"{'127.0.0.1' if host == '0.0.0.0' else host}:{port}"


def main():
    if sys.argv[1:] == ["--self-test"]:
        return 0 if unittest.main(argv=[sys.argv[0]], exit=False).result.wasSuccessful() else 1
    if sys.argv[1:2] == ["timely"] and len(sys.argv) > 3:
        load, *statuses = (json.loads(Path(file).read_text(encoding="utf-8")) for file in sys.argv[2:])
        found = delays(load, statuses)
        print("\n".join(found) or "every model kept its objective")
        return 1 if found else 0
    if len(sys.argv) != 2 or sys.argv[1] not in ("verdict", "target", "http", "metrics"):
        print(__doc__, file=sys.stderr)
        return 2
    document = json.load(sys.stdin)
    if sys.argv[1] != "verdict":
        print(target(document, "listen" if sys.argv[1] == "target" else sys.argv[1]))
        return 0
    problems = verdict(document)
    print("\n".join(problems) or "no errors, and the digits are read")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
