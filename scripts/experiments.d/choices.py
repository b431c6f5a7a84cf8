"""The inputs of a plan (policy, interference model, setting) and their names in plots."""
import csv
import math
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

ALL_POLICIES = ("static-equal", "sbp", "sbp-split", "greedy-best-fit", "guided-self-tuning", "elastic-preprint",
                "elastic-published", "elastic", "ideal", "cover")
# Relative planning time; affects only the order of work and the progress.
PLANNING_WEIGHT = {"cover": 40, "ideal": 25}

# defaults   the program's: margin, headroom for random arrivals, verified plans
# published  the text of both papers: measured latencies and mean rates
# shipped    the code that the authors of gpulet published: latencies times 1.1, rates raised (raised_rate)
FLAGS = {"defaults": (), "published": ("--margin", "1", "--headroom", "none"),
         "shipped": ("--margin", "1.1", "--headroom", "none")}


@dataclass(frozen=True)
class Choice:
    policy: str
    interference: str = "none"
    setting: str = "published"

    def flags(self):
        return ["--policy", self.policy, "--interference", self.interference, *FLAGS[self.setting]]

    @property
    def weight(self):
        return PLANNING_WEIGHT.get(self.policy, 1) * (1 if self.interference == "none" else 2)

    @property
    def name(self):
        return self.policy if self.interference == "none" else f"{self.policy}+{self.interference}"


def raised_rate(rate):
    """The rate that the authors' code plans for: the 99th percentile of the arrivals of one second at that mean.

    Above 550 requests/s the code takes ten percent more instead.
    """
    if rate > 550:
        return rate * 1.1
    if rate <= 0:
        return 0.0
    probability = sum_of = math.exp(-rate)
    arrivals = 0
    while sum_of < 0.99:
        arrivals += 1
        probability *= rate / arrivals
        sum_of += probability
    return float(max(arrivals, 1))


def raised(file):
    """The scenarios of a file with the rates that the authors' code plans for, as a file beside it."""
    file = Path(file)
    with open(file, encoding="utf-8", newline="") as opened:
        header, *rows = csv.reader(opened)
    text = "\n".join([",".join(header), *(",".join(f"{raised_rate(float(rate)):.10g}" for rate in row)
                                          for row in rows)]) + "\n"
    made = file.with_name(f"{file.stem}-raised.csv")
    # Studies that run in parallel may ask for the same file.
    descriptor, temporary = tempfile.mkstemp(dir=file.parent)
    with os.fdopen(descriptor, "w", encoding="utf-8") as opened:
        opened.write(text)
    os.replace(temporary, made)
    return str(made)


def command_of_a_row(scene):
    """The options of the commands that produced the rows of a CSV; words in capitals stand for columns."""
    settings = "; ".join(f"setting {name}: {' '.join(flags)}" for name, flags in FLAGS.items() if flags)
    return (f"--cluster {scene.cluster} --profiles {scene.profiles} --demand {scene.demand} --policy POLICY "
            f"--interference INTERFERENCE [{settings}, and --scenarios with raised rates]")
