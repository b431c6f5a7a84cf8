"""InSS: training, and throughput and violations under waves of load."""
from functools import partial

import inss_serving
import inss_training
import verdicts
from inss_setup import Setup

NAME = "inss"
DATA = "A100, eager, as two types of devices"
# InSS's throughput over that of its baselines (section 6.3).
PAPER_OVER = {"gpulet": 0.281, "guided-self-tuning": 0.477, "igniter": 1.897}
PAPERS_NAME = {"gpulet": "Gpulet", "guided-self-tuning": "GSLICE", "igniter": "iGniter"}
PAPER_BATCHES_OVER = 0.11   # BDA-Gpulet over Gpulet
NEGLIGIBLE = 0.1            # "not significant"
WEIGHT_OF_A_CLIMB = {6: 60, 8: 100}  # in episodes of training, by models: eight of them violate at higher loads


def signed(part):
    return f"{100 * part:+.1f} %"


def interval(parts):
    texts = (signed(min(parts)), signed(max(parts)))
    return texts[0] if texts[0] == texts[1] else " to ".join(texts)


def throughput_claims(runs, load, name_of_load):
    """Of three seeds, each with another training and another load."""
    rows = []
    for name, papers in PAPER_OVER.items():
        ours = runs.over_seeds("inss", name, load)
        rows.append([f"InSS has more throughput (figure 15; b divided by its time; {name_of_load})", signed(papers),
                     interval(ours), DATA, PAPERS_NAME[name], verdicts.more(min(ours), papers), NAME])
    ours = runs.over_seeds("inss", "inss-ni", load)
    rows.append([f"throughput hardly depends on interference prediction (figure 15; {name_of_load})", "not significant",
                 interval(ours), DATA, "InSS-ni", verdicts.all_hold(abs(part) < NEGLIGIBLE for part in ours), NAME])
    return rows


def serving_claims(runs, authors):
    six, eight, load = runs[6], runs[8], inss_serving.COMPARED
    rows = throughput_claims(authors, inss_serving.AUTHORS, "the authors' rates") + throughput_claims(six, load, "our waves")
    violated = six.mean("inss", load, "violated")
    rows.append(["InSS violates less than 1 % of the objectives (figure 17)", "below 1 %", f"{100 * violated:.2f} %",
                 DATA, "–", verdicts.less(violated, 0.01, 0.02), NAME])
    fewer = [six.mean(name, load, "violated") > violated for name in ("inss-ni", *PAPER_OVER)]
    rows.append(["InSS violates less than without interference prediction and than each baseline (figure 17)",
                 "baselines 3.8 to 4.5 %",
                 f"less than {sum(fewer)} of {len(fewer)}", DATA, "each", verdicts.all_hold(fewer), NAME])
    ours = six.over("elastic-batch-search", "gpulet")
    rows.append(["the batch search gives Gpulet more throughput (section 6.3)", signed(PAPER_BATCHES_OVER), signed(ours),
                 DATA, "Gpulet", verdicts.more(ours, PAPER_BATCHES_OVER), NAME])
    full = {name: six.mean(name, load, "run_batch") / six.mean(name, load, "planned_batch")
            for name in ("inss", "gpulet")}
    rows.append(["InSS runs batches as large as decided, Gpulet does not (figure 18)", "almost identical",
                 f"{100 * full['inss']:.0f} % of the decided batch; Gpulet {100 * full['gpulet']:.0f} %",
                 DATA, "the decided batch", verdicts.all_hold((full["inss"] > 0.9,)), NAME])
    for name in ("gpulet", "guided-self-tuning"):
        used = f"{PAPERS_NAME[name]} on {eight.mean(name, load, 'devices'):.1f} devices"
        ours = eight.over("inss_4", name)
        rows.append(["eight models on four devices: comparable throughput with fewer devices (figure 21)", "comparable",
                     signed(ours), DATA, used, verdicts.more(1 + ours, 1, 0.8), NAME])
        ours = eight.over("inss_5", name)
        rows.append(["eight models on five devices: more throughput (figure 21)", "more", signed(ours), DATA, used,
                     verdicts.more(ours, 0.01), NAME])
    violated = {name: eight.mean(name, load, "violated") for name in ("inss_4", "inss_5")}
    rows.append(["fewer than 1 % violated with eight models (figure 22)", "below 1 %",
                 ", ".join(f"{name}: {100 * part:.2f} %" for name, part in violated.items()), DATA, "–",
                 verdicts.all_hold(part < 0.01 for part in violated.values()), NAME])
    return rows


def training_claims(curves):
    ends = [inss_training.mean_of(rows, "violation", -inss_training.LAST, None) for (case, _), rows in curves.items()
            if case == inss_training.SIX_CASE]
    return [["training converges to less than 1 % of violations (figure 14)", "below 1 %",
             f"{100 * min(ends):.2f} to {100 * max(ends):.2f} % (three seeds, with sampling)",
             DATA, "–", verdicts.less(max(ends), 0.01, 0.5), NAME]]


def train_and_climb(setup):
    """The learning curves by training, and the runs by item of the policies that need no training: three long trainings
    would leave a core idle."""
    ready = inss_serving.items(trained=False)
    tasks = [(inss_training.episodes_of(setup, case), partial(inss_training.train, setup, case, seed))
             for case, seed in inss_training.TRAININGS]
    tasks += [(WEIGHT_OF_A_CLIMB[len(item[0])], partial(inss_serving.climb, setup, *item)) for item in ready]
    done = setup.runner.map("inss, training and rules", lambda task: task[1](), tasks, lambda task: task[0])
    return dict(zip(inss_training.TRAININGS, done)), dict(zip(ready, done[len(inss_training.TRAININGS):]))


def run(measured, runner, results, quick):
    setup = Setup(measured, runner, results, quick)
    curves, climbed = train_and_climb(setup)
    inss_training.run(setup, curves)
    runs, authors = inss_serving.run(setup, climbed)
    results.claims("claims-inss", serving_claims(runs, authors) + training_claims(curves))
    six = runs[6]
    results.value("inss_goodput_over_gpulet", signed(six.over("inss", "gpulet", "in_time")))
    results.value("inss_goodput_over_elastic", signed(six.over("inss", "elastic", "in_time")))
    results.value("inss_throughput_over_elastic", signed(six.over("inss", "elastic")))
    results.value("inss_no_interference", signed(six.over("inss", "inss-ni")))
