"""MIG-serving: a day, a night and a day on real processes, whose frontend follows the load.

The load falls to the night's, stays there, and rises to the day's in sixteen steps of 8 % each. The frontend knows only
the rates that it measures. Figures are those of the machine: devices do not compute, but processes start.
"""
import re
from pathlib import Path

import mig_five_models
import pictures
import verdicts
from mig_five_models import DAY, NIGHT, SLO_MS, Layer

NAME = "mig_day_night"
STEPS = 16
LOOK_S = 0.5
AFTERWARDS_S = 2    # the last batches of gpulets that go
NEGLIGIBLE = 0.1    # percent of missed requests
DROPPED = ("too_late", "overloaded")
SERVES = re.compile(r"epoch (\d+) serves( on the way to the plan)?, (\d+) ms after it was decided: (\d+) gpulets? on "
                    r"(\d+) devices?")


class Times:
    """Times of the phases in seconds since the start of the load."""

    def __init__(self, quick):
        self.warm, hold, night, rise = (3, 4, 6, 16) if quick else (10, 20, 30, 120)
        self.falls = self.warm + hold
        self.night = self.falls + rise / 5
        self.rises = self.night + night
        self.day = self.rises + rise
        self.end = self.day + hold

    def layers(self):
        """[(begin, end, rates)]: the night's load throughout, and layers that end and begin in turn."""
        yield 0, self.end, NIGHT
        factor = (sum(DAY.values()) / sum(NIGHT.values())) ** (1 / STEPS)
        for step in range(STEPS):
            part = (factor ** (step + 1) - factor ** step) / (factor ** STEPS - 1)
            rates = {name: part * (DAY[name] - NIGHT[name]) for name in DAY}
            yield 0, self.falls + (self.night - self.falls) * (STEPS - step) / STEPS, rates
            yield self.rises + (self.day - self.rises) * step / STEPS, self.end, rates


class Notes:
    """The frontend's events and devices, by the clock of the load."""

    def __init__(self):
        self.events, self.series, self.before = {}, [], None
        self.created = self.removed = 0

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
        self.series.append((now, len(set(gpulets.values())), len(gpulets)))

    def serving(self):
        """[(time it serves, seconds since it was decided, whether another stage follows, devices)]"""
        for (_, text), at in sorted(self.events.items(), key=lambda item: item[1]):
            found = SERVES.match(text)
            if found:
                yield at, int(found[3]) / 1000, bool(found[2]), int(found[5])

    def windows(self):
        """[(from the decision, until two seconds after it serves)] of each stage."""
        return [(at - took, at + AFTERWARDS_S) for at, took, _, _ in self.serving()]


class Outcome:
    def __init__(self, requests):
        self.offered = len(requests)
        self.lost = sum(status != "ok" and status not in DROPPED for _, status, _ in requests)
        self.dropped = sum(status in DROPPED for _, status, _ in requests)
        self.late = sum(status == "ok" and latency > SLO_MS for _, status, latency in requests)

    @property
    def missed(self):
        """The part of the requests, in percent."""
        return 100 * (self.late + self.dropped + self.lost) / self.offered if self.offered else 0.0

    def row(self):
        return [f"{self.offered:,}", self.late, self.dropped, self.lost, f"{self.missed:.3f} %"]


class Day:
    """A measured run."""

    def __init__(self, requests, unanswered, notes, times):
        self.requests, self.notes, self.times = requests, notes, times
        self.every = Outcome(requests)
        self.lost = self.every.lost + unanswered

    def between(self, begin, end):
        return Outcome([one for one in self.requests if begin <= one[0] < end])

    def beside(self):
        """During transitions, and at other times."""
        windows = self.notes.windows()
        inside, outside = [], []
        for one in self.requests:
            within = any(begin <= one[0] < end for begin, end in windows)
            if within or one[0] >= self.times.warm:
                (inside if within else outside).append(one)
        return Outcome(inside), Outcome(outside)

    def stages(self, begin, end):
        return [stage for stage in self.notes.serving() if begin <= stage[0] < end]

    def seconds_per_plan(self, begin, end):
        """The mean time of all stages of a plan: the number of plans depends on how long the load falls or rises."""
        stages = self.stages(begin, end)
        return sum(stage[1] for stage in stages) / max(1, sum(not stage[2] for stage in stages))


def measure(programs, work, times):
    mig_five_models.prepare(programs, work)
    site = mig_five_models.start(programs, work)
    notes = Notes()
    try:
        site.wait_until_serving(schedulable=True)
        layers = [Layer(site, number, *layer) for number, layer in enumerate(times.layers())]
        mig_five_models.send(site, layers, times.end + AFTERWARDS_S, LOOK_S, notes.look)
    finally:
        site.stop()
    requests, unanswered = [], 0
    for layer in layers:
        rows, missing = layer.requests()
        requests += rows
        unanswered += missing
    return Day(requests, unanswered, notes, times)


# ---- results

def series_of(day):
    """A row per second: load, misses, and the frontend's devices and gpulets."""
    seconds = {}
    for at, status, latency in day.requests:
        row = seconds.setdefault(int(at), [0, 0, 0])
        row[0] += 1
        row[1] += status in DROPPED or (status == "ok" and latency > SLO_MS)
        row[2] += status != "ok" and status not in DROPPED
    rows = []
    for second in range(int(max(seconds)) + 1):
        seen = [row[1:] for row in day.notes.series if int(row[0]) == second]
        known = [max(column) for column in zip(*seen)] if seen else ["", ""]
        rows.append([second, *seconds.get(second, [0, 0, 0]), *known])
    return rows


def tables(results, day):
    times = day.times
    stage_rows = []
    for name, begin, end in (("day to night", times.falls, times.rises), ("night to day", times.rises, times.end)):
        stages = day.stages(begin, end)
        took = [stage[1] for stage in stages]
        stage_rows.append([name, sum(not stage[2] for stage in stages), len(stages),
                           f"{max(took):.1f} s" if took else "–", f"{sum(took):.1f} s"])
    results.table("mig_stages", ["", "plans", "stages", "longest stage", "all stages"], stage_rows)
    beside, elsewhere = day.beside()
    results.table("mig_day_night", ["", "requests", "late", "dropped", "lost", "missed"],
                  [[name, *outcome.row()] for name, outcome in (
                      ("all", day.every), ("during transitions", beside), ("at other times", elsewhere),
                      ("the day before", day.between(times.warm, times.falls)),
                      ("the night", day.between(times.night, times.rises)),
                      ("the day after", day.between(times.day, times.end)))])
    results.value("mig_created", str(day.notes.created))
    results.value("mig_removed", str(day.notes.removed))
    results.value("mig_slo", f"{SLO_MS / 1000:g} s")
    results.value("mig_most_instances", str(max(row[2] for row in day.notes.series)))


def claims(results, day):
    times = day.times
    down, up = day.seconds_per_plan(times.falls, times.rises), day.seconds_per_plan(times.rises, times.end)
    beside, elsewhere = day.beside()
    results.claims(f"claims-{NAME}", [
        ("day2night is faster than night2day (figure 13a)", "yes", f"{down:.1f} s and {up:.1f} s of stages for a plan",
         verdicts.all_hold([down < up]), NAME),
        ("a transition interrupts no service (section 6)", "no interruption",
         f"{day.lost} of {day.every.offered:,} requests lost", verdicts.all_hold([day.lost == 0]), NAME),
        ("users do not notice a transition (section 6)", "no effect",
         f"{beside.missed:.3f} % missed during transitions, {elsewhere.missed:.3f} % at other times",
         verdicts.all_hold([beside.missed <= max(elsewhere.missed, NEGLIGIBLE)]), NAME),
        ("a transition ends within half an hour (section 8)", "30 minutes", "no Kubernetes and no real MIG here",
         verdicts.NOT_TESTABLE, NAME)])


def draw(results, rows):
    drawing, plots = pictures.figure(3, 1, width=9, height=5, sharex=True)
    times = [row[0] for row in rows]
    plots[0].plot(times, [row[1] for row in rows], color="#3182bd", linewidth=0.8)
    plots[0].set_ylabel("requests/s")
    for place, name, colour in ((4, "devices", "#3182bd"), (5, "instances", "#31a354")):
        known = [(row[0], row[place]) for row in rows if row[place] != ""]
        plots[1].step(*zip(*known), where="post", color=colour, label=name)
    plots[1].set_ylim(0, None)
    plots[1].legend(loc="center left", bbox_to_anchor=(1, 0.5), fontsize=8)
    plots[2].bar(times, [row[2] for row in rows], width=1, color="#d95f0e")
    plots[2].set_ylim(0, max(1, *(row[2] for row in rows)))
    plots[2].set_ylabel("late or dropped")
    plots[2].set_xlabel("time, s")
    pictures.save(drawing, results.plot("mig_day_night"))


def run(measured, runner, results, quick):
    del runner  # the load is in real time
    programs = Path(measured.gpulet).parent.resolve()
    day = measure(programs, (Path(measured.work) / NAME).resolve(), Times(quick))
    rows = series_of(day)
    results.csv("mig_day_night.csv", ["scripts/experiments --only mig_day_night"],
                ["time_s", "offered", "missed", "lost", "devices", "gpulets"], rows)
    tables(results, day)
    claims(results, day)
    draw(results, rows)
