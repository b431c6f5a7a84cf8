"""Plans that miss their SLO, by interference model: gpulet figure 14 over many scenarios."""
import itertools
from dataclasses import dataclass

import pictures
from choices import Choice, command_of_a_row
from measurements import PAIRED_MODELS
from program import NOISE, Planner

NAME = "violations"
DEVICES = 4
SECONDS = 20
SEEDS = (1, 2, 3)
STEP = 500                   # requests per second
STEPS = 7                    # rates from 0 to 6 steps
# Every fourth scenario, and every third where slowdowns are unseen: no factor of the steps, so that each rate of a model
# is as frequent.
PART, UNSEEN_PART = 4, 3
KINDS = ("none", "linear", "learned", "measured")
SETTINGS = ("defaults", "shipped", "published")
LEAST_SHOWN = 1e-3           # percent; a logarithmic axis has no zero


@dataclass(frozen=True)
class Run:
    choice: Choice
    seed: int
    without: str = ""  # the model whose pairs the simulated slowdowns never saw; empty: the measured ones


def scenarios(part):
    """A part of the 342 combinations of rates but all zeros."""
    rows = [row for row in itertools.product(range(STEPS), repeat=len(PAIRED_MODELS)) if any(row)]
    return [tuple(STEP * rate for rate in row) for row in rows[::part]]


def plan_runs(quick):
    choices = [Choice("sbp", "none", setting) for setting in SETTINGS]
    choices += [Choice("elastic", kind, "defaults") for kind in KINDS]
    choices.append(Choice("cover", "learned", "defaults"))  # its plans with headroom take 0.2 s each
    choices += [Choice("elastic-published", kind, setting) for setting in ("published", "shipped") for kind in KINDS]
    runs = [Run(choice, seed) for choice in choices for seed in (SEEDS[:1] if quick else SEEDS)]
    # What the model of slowdowns learned is tested where it did not learn: plans know every pair, the devices of the
    # simulation behave as a model says that never saw this one.
    unseen = [Choice("elastic", "learned", "defaults"), Choice("elastic-published", "learned", "shipped")]
    return runs + [Run(choice, SEEDS[0], model) for choice in unseen for model in PAIRED_MODELS]


def broken_rows(rows, outcomes):
    """The plans with headroom that have more than 1 % violations, of all requests or of one model."""
    for run, out in outcomes:
        if run.choice.setting != "defaults" or run.without:
            continue
        for row in out["rows"]:
            if row["schedulable"] and row["worst"] > 0.01:
                yield [run.choice.policy, run.choice.interference, run.seed, *rows[row["row"] - 1], row["devices"],
                       row["violation"], row["worst_model"], row["worst"]]


def table(results, outcomes):
    by_choice = {}
    for run, out in outcomes:
        if not run.without:
            by_choice.setdefault(run.choice, []).append(out)
    rows = []
    for choice, outs in by_choice.items():
        schedulable = outs[0]["schedulable"]
        counts = [out["over_1_percent"] for out in outs]
        worst = max(row.get("violation", 0) for out in outs for row in out["rows"])
        rows.append([f"`{choice.policy}`", "none: whole devices" if choice.policy == "sbp" else choice.interference,
                     choice.setting, schedulable, ", ".join(map(str, counts)),
                     f"{100 * sum(counts) / (schedulable * len(outs)):.1f} %",
                     ", ".join(str(out["model_over_1_percent"]) for out in outs), f"{100 * worst:.1f} %"])
    results.table("violations", ["policy", "interference in the plan", "setting", "schedulable", "over 1 %, by seed",
                                 "part of the plans", "with a model over 1 %", "worst"], rows)


def unseen_table(results, outcomes):
    """Plans of slowdowns that the simulated devices do not have."""
    rows = []
    for run, out in outcomes:
        if run.without:
            rows.append([f"`{run.choice.policy}`, {run.choice.setting}", run.without, out["schedulable"],
                         out["over_1_percent"], f"{100 * max(row.get('violation', 0) for row in out['rows']):.1f} %"])
    results.table("violations_unseen", ["policy, setting", "model whose pairs were not measured", "schedulable",
                                        "over 1 %", "worst"], rows)


def draw(results, outcomes, seed):
    """Sorted violations of each choice's plans at one seed."""
    drawing, axes = pictures.figure(1, 4, width=12, height=3.1, sharey=True)
    panels = (("elastic-published", "published"), ("elastic-published", "shipped"), ("elastic", "defaults"),
              ("cover", "defaults"))
    for plot, (policy, setting) in zip(axes, panels):
        for run, out in outcomes:
            if (run.choice.policy, run.choice.setting, run.seed, run.without) != (policy, setting, seed, ""):
                continue
            parts = sorted((100 * row["violation"] for row in out["rows"] if row["schedulable"]), reverse=True)
            kind = run.choice.interference
            plot.plot(range(1, len(parts) + 1), [max(part, LEAST_SHOWN) for part in parts], label=kind,
                      color=pictures.COLOURS[kind], linewidth=1.5)
        plot.axhline(1, color="black", linewidth=0.8, linestyle=":")
        plot.set_yscale("log")
        plot.set_yticks([LEAST_SHOWN, 0.01, 0.1, 1, 10, 100], ["0", "0.01", "0.1", "1", "10", "100"])
        plot.set_title(f"{policy}, {setting}")
        plot.set_xlabel("schedulable scenarios, worst first")
    axes[0].set_ylabel("violations, %")
    axes[-1].legend(title="interference\nin the plan", loc="center left", bbox_to_anchor=(1, 0.5))
    pictures.save(drawing, results.plot("violations"))


def run(measured, runner, results, quick):
    if not measured.has_pairs:
        print("    violations: these measurements have no pairs, so the study is skipped", flush=True)
        return
    rows = scenarios(60 if quick else PART)
    models = measured.choose(PAIRED_MODELS)
    planner = Planner(measured.gpulet, measured.scene("paired", models, DEVICES))
    file = measured.scenarios(NAME, models, rows)
    unseen = measured.scenarios(f"{NAME}-unseen", models, scenarios(60 if quick else UNSEEN_PART))
    runs = plan_runs(quick)
    folders = {model: measured.profiles_without([model]) for model in models}

    def work(one):
        more = ("--simulated-interference", folders[one.without]) if one.without else ()
        return planner.simulate_scenarios(one.choice, unseen if one.without else file, SECONDS, one.seed, more)

    outcomes = list(zip(runs, runner.map(NAME, work, runs, lambda one: 20 + one.choice.weight / 4)))
    commands = ["scripts/experiments --only violations",
                f"each row: gpulet simulate {command_of_a_row(planner.scene)} --scenarios {file} "
                f"--seconds {SECONDS} --seed SEED --noise {NOISE} [--simulated-interference WITHOUT] --json"]
    results.csv("violations.csv", commands,
                ["policy", "interference", "setting", "seed", "without", "scenarios", "schedulable", "over_1_percent",
                 "model_over_1_percent"],
                [[one.choice.policy, one.choice.interference, one.choice.setting, one.seed, one.without, out["scenarios"],
                  out["schedulable"], out["over_1_percent"], out["model_over_1_percent"]] for one, out in outcomes])
    results.csv("violations_over.csv", commands,
                ["policy", "interference", "seed", *models, "devices", "violation", "worst_model",
                 "worst_model_violation"], broken_rows(rows, outcomes))
    table(results, outcomes)
    unseen_table(results, outcomes)
    draw(results, outcomes, SEEDS[0])
