"""Training of InSS's policies: figures 13 and 14."""
import subprocess
from statistics import fmean

import pictures
from files import read_csv
from inss_setup import Case, EIGHT, PUBLISHED, SIX
from program import ENVIRONMENT, ProgramFailed

SIX_CASE = Case("six", SIX, 4)
EIGHT_4, EIGHT_5 = Case("eight-4", EIGHT, 4), Case("eight-5", EIGHT, 5)
SEEDS = (1, 2, 3)
STEPS = 200                   # of an episode (table 1)
# The paper's curves converge within 800 of its 1,500 episodes (section 6.3). Half of them keep all studies within an hour on two
# cores; --long trains for 800.
EPISODES, OTHER_EPISODES = {"six": 400}, 100
LONGER = 2
RATES = 1.3                   # trained up to this part of the highest rates
# An update takes several times as long as a step.
STEP_SECONDS, STEPS_PER_UPDATE = 0.25, 8
# For 10,000 updates instead of the paper's 300,000, and rewards that hardly depend on earlier plans.
FIRST_TEMPERATURE, DISCOUNT = 0.02, 0.5
TRAININGS = tuple((SIX_CASE, seed) for seed in SEEDS) + ((EIGHT_4, 1), (EIGHT_5, 1))
COLOURS = {"six": "#d95f0e", "eight-4": "#3182bd", "eight-5": "#08519c"}
SMOOTHED = 20                 # episodes of a moving mean
LAST = 50                     # episodes at the end of a training, of which the tables show the means


def name_of(case, seed):
    return f"{case.name}-{seed}"


def policy_file(setup, case, seed):
    return setup.path(f"{name_of(case, seed)}.policy")


def episodes_of(setup, case):
    episodes = EPISODES.get(case.name, OTHER_EPISODES)
    return 2 if setup.quick else LONGER * episodes if setup.long else episodes


def command(setup, case, seed):
    rates = {model: RATES * rate for model, rate in setup.highest[case.models].items()}
    demand = setup.demand(f"train-{case.name}", rates)
    return [str(setup.gpulet), "train", *setup.planning(demand, case.devices), "--episodes",
            str(episodes_of(setup, case)), "--steps", str(STEPS), "--step-seconds", str(STEP_SECONDS),
            "--steps-per-update", str(STEPS_PER_UPDATE), "--first-temperature", str(FIRST_TEMPERATURE), "--discount",
            str(DISCOUNT), *PUBLISHED, "--seed", str(seed), "--threads", "1", "--out",
            str(policy_file(setup, case, seed)), "--json"]


def train(setup, case, seed):
    """The rows of the learning curve."""
    asked = command(setup, case, seed)
    done = subprocess.run(asked, capture_output=True, text=True, check=False, env=ENVIRONMENT)
    if done.returncode != 0:
        raise ProgramFailed(f"{' '.join(asked)}\nended with {done.returncode}: {done.stderr.strip()[-400:]}")
    return read_csv(setup.path(f"{name_of(case, seed)}.csv"))


def mean_of(rows, column, first, last):
    return fmean(float(row[column]) for row in rows[first:last])


def settings_table(setup):
    steps = STEPS * episodes_of(setup, SIX_CASE)
    setup.results.table("inss_settings", ["setting", "here", "the paper"], [
        ["steps of a training (six models)", f"{steps:,}", "300,000; its curves converge within 160,000"],
        ["updates of the networks", f"{steps // STEPS_PER_UPDATE:,}", "300,000"],
        ["a step lasts", f"{STEP_SECONDS:g} s", "not published"],
        ["first temperature", f"{FIRST_TEMPERATURE:g}, for rewards in units of their standard deviation",
         "1; its normalisation of rewards is not published"],
        ["discount", f"{DISCOUNT:g}", "0.99"],
        ["target entropy", "a twentieth of the uniform choice's", "-log(1 + outputs): negative"]])


def curves_table(setup, curves):
    lines = []
    for (case, seed), rows in curves.items():
        last = min(LAST, len(rows))
        begin, end = (0, last), (len(rows) - last, len(rows))
        played = [row for row in rows if row["played_violation"]]
        lines.append([f"{case.name}, seed {seed}", f"{sum(int(row['steps']) for row in rows):,}",
                      f"{mean_of(rows, 'reward', *begin):.1f}", f"{mean_of(rows, 'reward', *end):.1f}",
                      f"{100 * mean_of(rows, 'violation', *begin):.2f} %",
                      f"{100 * mean_of(rows, 'violation', *end):.2f} %",
                      f"{mean_of(rows, 'batch_throughput', *begin):.0f}",
                      f"{mean_of(rows, 'batch_throughput', *end):.0f}",
                      f"{100 * min(float(row['played_violation']) for row in played):.2f} %" if played else "–"])
    setup.results.table("inss_training", ["training", "steps", "reward, first episodes", "last", "violations, first",
                                          "last", "throughput, first", "last", "fewest without sampling"], lines)


def draw(setup, curves):
    drawing, plots = pictures.figure(3, 1, width=9, height=6, sharex=True)
    for (case, seed), rows in curves.items():
        for axes, column, factor in zip(plots, ("reward", "violation", "batch_throughput"), (1, 100, 1)):
            values = [factor * float(row[column]) for row in rows]
            smooth = [fmean(values[max(0, place - SMOOTHED + 1):place + 1]) for place in range(len(values))]
            axes.plot([int(row["episode"]) for row in rows], smooth, color=COLOURS[case.name], linewidth=1,
                      label=case.name if seed == 1 else None)
    for axes, label in zip(plots, ("reward of a step", "violations, %", "throughput (b/t), 1/s")):
        axes.set_ylabel(label)
    plots[1].set_yscale("symlog", linthresh=1)
    plots[1].set_yticks([1, 2, 5, 10, 20, 50], ["1", "2", "5", "10", "20", "50"])
    plots[1].minorticks_off()
    plots[0].legend(loc="center left", bbox_to_anchor=(1, 0.5), fontsize=8)
    plots[2].set_xlabel(f"episode (mean of the last {SMOOTHED})")
    pictures.save(drawing, setup.results.plot("inss_training"))


def run(setup, curves):
    """Writes the learning curves, by case and seed."""
    columns = list(curves[TRAININGS[0]][0])
    setup.results.csv("inss_training.csv",
                      ["scripts/experiments --only inss",
                       f"gpulet train --cluster CLUSTER --demand DEMAND --episodes EPISODES --steps {STEPS} "
                       f"--step-seconds {STEP_SECONDS} --steps-per-update {STEPS_PER_UPDATE} --first-temperature "
                       f"{FIRST_TEMPERATURE} --discount {DISCOUNT} {' '.join(PUBLISHED)} --seed SEED "
                       f"(demand: {RATES} times the highest rates)"],
                      ["case", "seed", *columns],
                      [[case.name, seed, *(row[column] for column in columns)]
                       for (case, seed), of in curves.items() for row in of])
    settings_table(setup)
    curves_table(setup, curves)
    draw(setup, curves)
