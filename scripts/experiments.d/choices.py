"""The inputs of a plan (policy, interference model, margin, headroom) and their names in plots."""
from dataclasses import dataclass

ALL_POLICIES = ("sbp", "sbp-split", "greedy-best-fit", "guided-self-tuning", "elastic-preprint", "elastic", "ideal",
                "cover")
# Relative planning time; affects only the order of work and the progress.
PLANNING_WEIGHT = {"cover": 40, "ideal": 25}


@dataclass(frozen=True)
class Choice:
    policy: str
    interference: str = "none"
    as_in_the_papers: bool = True  # margin 1 and no headroom; else the program's defaults

    def flags(self):
        setting = ["--margin", "1", "--headroom", "none"] if self.as_in_the_papers else []
        return ["--policy", self.policy, "--interference", self.interference, *setting]

    @property
    def setting(self):
        return "papers" if self.as_in_the_papers else "defaults"

    @property
    def weight(self):
        return PLANNING_WEIGHT.get(self.policy, 1) * (1 if self.interference == "none" else 2)

    @property
    def name(self):
        return self.policy if self.interference == "none" else f"{self.policy}+{self.interference}"


def command_of_a_row(scene):
    """The options of the commands that produced the rows of a CSV; words in capitals stand for columns."""
    return (f"--cluster {scene.cluster} --profiles {scene.profiles} --demand {scene.demand} --policy POLICY "
            "--interference INTERFERENCE [setting papers: --margin 1 --headroom none]")
