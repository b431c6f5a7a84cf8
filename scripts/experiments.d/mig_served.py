"""MIG-serving: requests served by the plans of day and night, and a day whose plans follow the load (figure 14)."""
import pictures
import verdicts
from files import read_csv
from mig_setup import AS_PUBLISHED, COLOURS, PROFILES, Setup
from mig_transition import DAY, SETTINGS, sites_of
from program import NOISE

NAME = "mig_served"
COMMAND = f"scripts/experiments --only {NAME}"
LOADS = (1.0, 1.05, 1.1, 1.2, 1.3, 1.5)  # of what is required, until the most is served
SATURATED_S = 20
# Of the simulated day: the day's rates, a fall, the night's, a rise, the day's. The rise has two lengths.
DAY_S, FALL_S, NIGHT_S, STEP_S, PERIOD_S = 30, 40, 30, 2, 10
RISES_S = {"fast": 60, "slow": 180}


def day_of(site, rise_s):
    """The day, [(time, {model: rate})] in steps, and its end."""
    marks = ((0, "day"), (DAY_S, "day"), (DAY_S + FALL_S, "night"), (DAY_S + FALL_S + NIGHT_S, "night"),
             (DAY_S + FALL_S + NIGHT_S + rise_s, "day"))
    steps = []
    for (begin, old), (end, new) in zip(marks, marks[1:]):
        for time in range(begin, end, STEP_S):
            part = (time - begin) / (end - begin)
            steps.append((time, {model: rate * (site.rates[new][model] / rate) ** part
                                 for model, rate in site.rates[old].items()}))
    steps.append((marks[-1][0], site.rates["day"]))
    return steps, marks[-1][0] + DAY_S


def simulate_day(setup, site, rise):
    steps, seconds = day_of(site, RISES_S[rise])
    lines = "".join(f"{time},{model},{rate:.3f}\n" for time, rates in steps for model, rate in rates.items())
    trace = setup.folder.write(f"{site.folder}/trace-{rise}.csv", "time_s,model,rate\n" + lines)
    series = site.path(f"series-{rise}.csv")
    found = setup.gpulet_json("simulate", *site.inputs("day"), "--trace", trace, "--series", series,
                              "--period", PERIOD_S, "--seconds", seconds, "--seed", 1, "--noise", NOISE)
    return found, read_csv(series)


# ---- served, relative to the requirement

def satisfaction(setup, site):
    """{(setting, day or night): {model or "all": most served in time over required}}"""
    loads = LOADS[:2] if setup.quick else LOADS
    items = [(setting, when, load) for setting in SETTINGS for when in ("day", "night") for load in loads]

    def work(item):
        setting, when, load = item
        rates = site.rates[when]
        lines = "".join(f"0,{model},{rate * load:.3f}\n" for model, rate in rates.items())
        trace = setup.folder.write(f"{site.folder}/{when}-{load}.csv", "time_s,model,rate\n" + lines)
        out = setup.gpulet_json("simulate", *site.inputs(when), "--keep-plan", "--trace", trace, "--seconds",
                                SATURATED_S, "--seed", 1, "--noise", NOISE, *SETTINGS[setting])
        served = {row["name"]: (row["served"] - row["late"]) / SATURATED_S for row in out["models"]}
        parts = {model: served[model] / rate for model, rate in rates.items()}
        return {**parts, "all": sum(served.values()) / sum(rates.values())}

    found = list(zip(items, setup.runner.map(f"{NAME}, plans", work, items,
                                             lambda item: 3 if item[1] == "day" else 1)))
    setup.results.csv("mig_satisfaction.csv", [
        COMMAND,
        "gpulet simulate --policy mig-two-phase --keep-plan --demand DAY_OR_NIGHT.json --trace (load times its rates) "
        f"--seconds {SATURATED_S} --seed 1 --noise {NOISE} --json; as published: {' '.join(AS_PUBLISHED)}"],
        ["setting", "workload", "load", "model", "served_in_time_of_required"],
        [[*item, model, part] for item, parts in found for model, part in parts.items()])
    most = {}
    for (setting, when, _), parts in found:
        of_case = most.setdefault((setting, when), {})
        for model, part in parts.items():
            of_case[model] = max(of_case.get(model, 0), part)
    setup.results.table("mig_satisfaction", ["", *DAY, "all"],
                        [[f"{when}, {setting}", *(f"{100 * parts[model]:.1f} %" for model in [*DAY, "all"])]
                         for (setting, when), parts in most.items()])
    draw_satisfaction(setup, most)
    return most


def draw_satisfaction(setup, most):
    drawing, plots = pictures.figure(1, len(SETTINGS), width=9, height=2.8, sharey=True)
    models = [*DAY, "all"]
    for axes, setting in zip(plots, SETTINGS):
        heights = {when: [100 * most[setting, when][model] for model in models] for when in ("day", "night")}
        pictures.grouped_bars(axes, models, list(heights), heights, COLOURS)
        axes.axhline(100, color="black", linewidth=0.8, linestyle=":")
        axes.set_title(setting)
        axes.tick_params(axis="x", labelsize=7)
    plots[0].set_ylabel("served in time, % of required")
    plots[1].legend(loc="center left", bbox_to_anchor=(1, 0.5), fontsize=8)
    pictures.save(drawing, setup.results.plot("mig_satisfaction"))


def claims(results, most):
    least = min(part for (setting, _), parts in most.items() if setting == "as published" for part in parts.values())
    results.claims(f"claims-{NAME}", [
        ("served of the required throughput, each model (figure 14)", "above 95 %", f"{100 * least:.1f} % at least",
         "eleven models on an A100, MIG; simulated", "the requirement", verdicts.more(least, 0.95), NAME)])


# ---- a whole day, simulated

class SimulatedDay:
    def __init__(self, site, rise, out, series):
        self.site, self.rise, self.series = site, rise, series
        self.steps, self.seconds = day_of(site, RISES_S[rise])
        self.offered = sum(float(row["offered"]) for row in series)
        self.missed = sum(float(row["violations"]) for row in series)
        self.plans, self.reorganisations = out["plans"], out["reorganisations"]

    def span(self, name):
        values = [one[name] for one in self.reorganisations]
        return f"{min(values)} to {max(values)}"

    def missed_while(self, begin, end):
        rows = [row for row in self.series if begin <= float(row["time_s"]) < end]
        return sum(float(row["violations"]) for row in rows)


def simulated_days(setup, site):
    rises = list(RISES_S)[:1] if setup.quick else list(RISES_S)
    found = setup.runner.map(f"{NAME}, day", lambda rise: simulate_day(setup, site, rise), rises,
                             lambda rise: RISES_S[rise])
    days = [SimulatedDay(site, rise, *one) for rise, one in zip(rises, found)]
    columns = ("time_s", "devices", "share_percent", "offered", "violations")
    setup.results.csv("mig_simulated_day.csv", [
        COMMAND,
        f"gpulet simulate --cluster CLUSTER ({site.devices} devices) --profiles {PROFILES} --demand DAY.json --policy "
        f"mig-two-phase --trace TRACE --series SERIES --period {PERIOD_S} --seconds SECONDS --seed 1 --noise {NOISE} --json"],
        ["rise", *columns], [[day.rise, *(row[column] for column in columns)] for day in days for row in day.series])
    rise_begins = DAY_S + FALL_S + NIGHT_S
    setup.results.table("mig_simulated_day", ["rise", "requests", "late or dropped", "of these in the rise", "devices",
                                              "instances", "plans"],
                        [[f"{RISES_S[day.rise]} s", f"{day.offered:,.0f}", f"{100 * day.missed / day.offered:.3f} %",
                          f"{day.missed_while(rise_begins, rise_begins + RISES_S[day.rise]):,.0f} of {day.missed:,.0f}",
                          day.span("devices"), day.span("gpulets"), day.plans] for day in days])
    draw_day(setup, days[-1])


def draw_day(setup, day):
    drawing, plots = pictures.figure(3, 1, width=9, height=4.6, sharex=True)
    plots[0].step([time for time, _ in day.steps], [sum(rates.values()) for _, rates in day.steps], where="post",
                  color=COLOURS["two-phase"], linewidth=1)
    plots[0].set_ylabel("requests/s")
    for name, colour in (("devices", "#3182bd"), ("gpulets", "#31a354")):
        at = [(one["time_s"], one[name]) for one in day.reorganisations]
        at.append((day.seconds, at[-1][1]))
        plots[1].step(*zip(*at), where="post", color=colour, label={"gpulets": "instances"}.get(name, name))
    plots[1].set_ylim(0, None)
    plots[1].legend(loc="center left", bbox_to_anchor=(1, 0.5), fontsize=8)
    plots[2].bar([float(row["time_s"]) for row in day.series],
                 [100 * float(row["violations"]) / max(1.0, float(row["offered"])) for row in day.series],
                 width=PERIOD_S * 0.9, align="edge", color="#d95f0e")
    plots[2].set_ylabel("late or dropped, %")
    plots[2].set_xlabel("time, s")
    pictures.save(drawing, setup.results.plot("mig_simulated_day"))


def run(measured, runner, results, quick):
    setup = Setup(measured, runner, results, quick)
    sites = sites_of(setup)
    most = satisfaction(setup, sites[0])
    simulated_days(setup, sites[0] if quick else sites[-1])
    claims(results, most)
