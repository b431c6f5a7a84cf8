#!/usr/bin/python3
"""Day, night and day on real processes: five models on 24 MIG devices on three nodes.

    bench/mig/day_night.py [--build build/release] [--work build/day_night] [--ramp S] [--plans-only]

Prints first what `gpulet transition` makes of the way between the two plans (figure 13 of the paper). Then it starts a
frontend with the policy mig-two-phase and three backends with simulated devices as processes on loopback, and sends the
day's load with `gpulet load`; the load falls to the night's within a fifth of --ramp seconds (160), stays there for a
time, and rises to the day's within --ramp, in sixteen steps of 8 % each. Aims: no request is lost; no more late or
dropped ones beside transitions than at other times, or below 0.1 %. Into --work: every request, the frontend's notes,
and day_night.csv, seconds by seconds. Figures are those of the machine: devices do not compute, but processes start.
Standard library only.
"""
import argparse
import csv
import json
import re
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench/support"))
from daemons import Site, write  # noqa: E402

import five_models  # noqa: E402

STEPS = 16
WARM_S, HOLD_S, NIGHT_S, LOOK_S = 10, 50, 90, 0.5
AFTERWARDS_S = 2  # the last batches of gpulets that go
NEGLIGIBLE = 0.001
DROPPED = ("too_late", "overloaded")
SERVES = re.compile(r"epoch (\d+) serves( on the way to the plan)?, (\d+) ms after it was decided: (\d+) gpulets? on "
                    r"(\d+) devices?")


# ---- plans

def gpulet_json(options, *arguments):
    return json.loads(subprocess.run([options.gpulet, *map(str, arguments), "--json"], check=True,
                                     stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout)


def plan_transitions(options):
    """[(name, planning seconds, the command's document)]"""
    for name in ("day", "night"):
        plan = gpulet_json(options, "optimize", "--cluster", options.work / "cluster.json", "--profiles",
                           options.work / "profiles", "--demand", options.work / f"{name}.json")
        write(options.work / f"plan-{name}.json", plan)
        print(f"{name}: {plan['devices_used']} devices, {len(plan['gpulets'])} instances")
    found = []
    for before, after in (("day", "night"), ("night", "day")):
        began = time.monotonic()
        document = gpulet_json(options, "transition", "--from", options.work / f"plan-{before}.json", "--to",
                               options.work / f"plan-{after}.json", "--cluster", options.work / "cluster.json",
                               "--picture", options.work / f"{before}2{after}.svg")
        found.append((f"{before}2{after}", time.monotonic() - began, document))
    return found


def print_transitions(options, found):
    with open(options.work / "actions.csv", "w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(["transition", "stages", "extra_devices", *found[0][2]["counts"]])
        for name, seconds, document in found:
            counts = document["counts"]
            rows.writerow([name, len(document["stages"]), document["extra_devices"], *counts.values()])
            print(f"{name}: {len(document['stages'])} stages, {document['extra_devices']} extra devices, "
                  + ", ".join(f"{count} {what}" for what, count in counts.items())
                  + f"; planned in {1000 * seconds:.0f} ms with the program's start")


# ---- the site

def site_of(options):
    models = []
    for name, rate in five_models.DAY.items():
        (options.work / f"{name}.pt").write_text(f"stands for model {name}", encoding="utf-8")
        models.append({"name": name, "file": f"{name}.pt", "slo_ms": five_models.SLO_MS, "rate": rate,
                       "max_batch": five_models.LARGEST_BATCH,
                       "inputs": [{"name": "x", "type": "UINT8", "shape": [784]}],
                       "outputs": [{"name": "y", "type": "UINT8", "shape": [10]}]})
    write(options.work / "models.json", {"models": models})
    frontend = {"models": "models.json", "profiles": "profiles", "policy": "mig-two-phase", "period_s": 10}
    backends = [{"node": f"n{number}", "profiles": "profiles",
                 "devices": five_models.devices(five_models.DEVICES_EACH)} for number in range(five_models.NODES)]
    return Site(options.programs, options.work, frontend, backends)


# ---- the load: the night's load throughout, plus sixteen layers that end and begin in turn

class Times:
    """Times of the phases in seconds since the start of the load."""

    def __init__(self, ramp):
        self.falls = WARM_S + HOLD_S
        self.night = self.falls + ramp / 5
        self.rises = self.night + NIGHT_S
        self.day = self.rises + ramp
        self.end = self.day + HOLD_S

    def layers(self):
        """[(begin, end, rates)]"""
        day, night = five_models.DAY, five_models.NIGHT
        yield 0, self.end, night
        factor = (sum(day.values()) / sum(night.values())) ** (1 / STEPS)
        for step in range(STEPS):
            part = (factor ** (step + 1) - factor ** step) / (factor ** STEPS - 1)
            rates = {name: part * (day[name] - night[name]) for name in day}
            ends = self.falls + (self.night - self.falls) * (STEPS - step) / STEPS
            yield 0, ends, rates
            yield self.rises + (self.day - self.rises) * step / STEPS, self.end, rates


class Layer:
    def __init__(self, site, number, begin, end, rates):
        self.begin, self.seconds, self.number = begin, end - begin, number
        self.site, self.process, self.began = site, None, None
        self.file = site.work / f"load-{number}"
        write(self.file.with_suffix(".json"), {"models": [
            {"name": name, "rate": rate, "slo_ms": five_models.SLO_MS} for name, rate in rates.items()]})

    def start(self, now):
        self.began = now
        with open(self.file.with_suffix(".log"), "w", encoding="utf-8") as log:
            self.process = subprocess.Popen(
                [self.site.programs / "gpulet", "load", "--target", self.site.target, "--workload",
                 self.file.with_suffix(".json"), "--seconds", f"{self.seconds:.3f}", "--seed", str(self.number + 1),
                 "--csv", self.file.with_suffix(".csv"), "--connections", "1", "--json"],
                stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)

    def requests(self):
        """[(intended s, model, status, latency ms)]"""
        self.process.wait()
        with open(self.file.with_suffix(".csv"), encoding="utf-8", newline="") as file:
            rows = [(self.began + float(row["intended_s"]), row["model"], row["status"], float(row["latency_ms"]))
                    for row in csv.DictReader(file)]
        said = json.loads(self.file.with_suffix(".log").read_text(encoding="utf-8"))
        offered = sum(model["offered"] for model in said["models"])
        return rows, offered - len(rows)


class Notes:
    """The frontend's events and devices, by the clock of the load."""

    def __init__(self):
        self.events, self.series, self.created, self.before = {}, [], 0, None
        self.removed = 0

    def look(self, status, now):
        for event in status["events"]:
            at = now - status["frontend"]["uptime_s"] + event["at_s"]
            self.events.setdefault((event["at_s"], event["text"]), at)
        gpulets = {gpulet["id"]: (node["name"], device["device"]) for node in status["nodes"]
                   for device in node["devices"] for gpulet in device["gpulets"]}
        if self.before is not None:
            self.created += len(gpulets.keys() - self.before)
            self.removed += len(self.before - gpulets.keys())
        self.before = set(gpulets)
        self.series.append((now, len(set(gpulets.values())), len(gpulets),
                            int(status["frontend"]["reorganising"])))

    def serving(self):
        """[(time it serves, seconds since it was decided, on the way?, gpulets, devices)]"""
        for (_, text), at in sorted(self.events.items(), key=lambda item: item[1]):
            found = SERVES.match(text)
            if found:
                yield at, int(found[3]) / 1000, bool(found[2]), int(found[4]), int(found[5])


def send(site, times):
    """Sends the load; gives the layers and the notes."""
    layers = [Layer(site, number, *layer) for number, layer in enumerate(times.layers())]
    waiting = sorted(layers, key=lambda layer: layer.begin)
    notes, zero = Notes(), time.monotonic()
    try:
        while (now := time.monotonic() - zero) < times.end + AFTERWARDS_S:
            while waiting and waiting[0].begin <= now:
                waiting.pop(0).start(time.monotonic() - zero)
            status = site.status()
            if status:
                notes.look(status, time.monotonic() - zero)
            time.sleep(LOOK_S)
    finally:
        for layer in layers:
            if layer.process and layer.process.poll() is None and time.monotonic() - zero < times.end:
                layer.process.terminate()
    return layers, notes


# ---- results

class Outcome:
    def __init__(self, requests):
        self.offered = len(requests)
        self.lost = sum(status != "ok" and status not in DROPPED for _, _, status, _ in requests)
        self.dropped = sum(status in DROPPED for _, _, status, _ in requests)
        self.late = sum(status == "ok" and latency > five_models.SLO_MS for _, _, status, latency in requests)

    def missed(self):
        return (self.late + self.dropped + self.lost) / self.offered if self.offered else 0

    def __str__(self):
        return (f"{self.offered:7} offered {self.late:5} late {self.dropped:5} dropped {self.lost:5} lost "
                f"{100 * self.missed():7.3f} % missed")


def windows_of(notes):
    """[(from the decision, until two seconds after it serves)] of each stage."""
    return [(at - took, at + AFTERWARDS_S) for at, took, _, _, _ in notes.serving()]


def print_stages(notes, times):
    for name, begin, end in (("day to night", times.falls, times.rises), ("night to day", times.rises, times.end)):
        stages = [stage for stage in notes.serving() if begin <= stage[0] < end]
        plans = [stage for stage in stages if not stage[2]]
        took = sorted(stage[1] for stage in stages)
        if not stages:
            continue
        print(f"{name}: {len(plans)} plans in {len(stages)} stages; a stage took {took[len(took) // 2]:.2f} s in the "
              f"median, {took[-1]:.2f} s at most, all together {sum(took):.1f} s; {plans[-1][4]} devices at the end")


def write_series(options, requests, notes):
    """A row per second: load, misses, and the frontend's gpulets and devices."""
    seconds = {}
    for at, _, status, latency in requests:
        row = seconds.setdefault(int(at), [0, 0, 0])
        row[0] += 1
        row[1] += status in DROPPED or (status == "ok" and latency > five_models.SLO_MS)
        row[2] += status != "ok" and status not in DROPPED
    with open(options.work / "day_night.csv", "w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(["time_s", "offered", "missed", "lost", "devices", "gpulets", "reorganising"])
        for second in range(int(max(seconds)) + 1):
            seen = [row for row in notes.series if int(row[0]) == second]
            known = [max(column) for column in list(zip(*seen))[1:]] if seen else ["", "", ""]
            rows.writerow([second, *seconds.get(second, [0, 0, 0]), *known])


def print_satisfaction(requests, times):
    print(f"{'served in time, of the requested load':40} day    night")
    for model in [*five_models.DAY, "all"]:
        parts = []
        for begin, end in ((WARM_S, times.falls), (times.night, times.rises)):
            chosen = [one for one in requests if begin <= one[0] < end and model in (one[1], "all")]
            parts.append(1 - Outcome(chosen).missed())
        print(f"{model:40} {100 * parts[0]:.2f} % {100 * parts[1]:.2f} %")


def judge(requests, unanswered, notes):
    windows = windows_of(notes)
    beside = Outcome([one for one in requests if any(begin <= one[0] < end for begin, end in windows)])
    else_where = Outcome([one for one in requests if not any(begin <= one[0] < end for begin, end in windows)
                          and one[0] >= WARM_S])
    print(f"beside transitions  {beside}\nat other times      {else_where}")
    lost = Outcome(requests).lost + unanswered
    aims = [(lost == 0, f"{lost} requests lost or failed of {len(requests)} (0)"),
            (beside.missed() <= max(else_where.missed(), NEGLIGIBLE),
             f"{100 * beside.missed():.3f} % missed beside transitions, {100 * else_where.missed():.3f} % at other "
             "times (no more, or below 0.1 %)")]
    for met, what in aims:
        print(f"{'ok    ' if met else 'MISSED'} {what}")
    return 0 if all(met for met, _ in aims) else 1


def run(options):
    times = Times(options.ramp)
    site = site_of(options)
    try:
        site.wait_until_serving(schedulable=True)
        layers, notes = send(site, times)
    finally:
        site.stop()
    requests, unanswered = [], 0
    for layer in layers:
        rows, missing = layer.requests()
        requests += rows
        unanswered += missing
    (options.work / "notes.txt").write_text(
        "".join(f"{at:8.2f} {text}\n" for (_, text), at in sorted(notes.events.items(), key=lambda one: one[1])),
        encoding="utf-8")
    write_series(options, requests, notes)
    print_stages(notes, times)
    print(f"{notes.created} gpulets created and {notes.removed} removed on the way, as the status showed them")
    print_satisfaction(requests, times)
    return judge(requests, unanswered, notes)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, default=ROOT / "build/release")
    parser.add_argument("--work", type=Path, default=ROOT / "build/day_night")
    parser.add_argument("--ramp", type=float, default=160)
    parser.add_argument("--plans-only", action="store_true")
    options = parser.parse_args()
    options.work = options.work.resolve()
    options.programs = options.build.resolve() / "bin"
    options.gpulet = options.programs / "gpulet"
    five_models.prepare(options.work, options.gpulet)
    print_transitions(options, plan_transitions(options))
    return 0 if options.plans_only else run(options)


if __name__ == "__main__":
    sys.exit(main())
