"""The measurements that the papers' claims are tested on, each with the nine models of the gpulet paper.

Figures on the reconstructed RTX 2080 Ti are the headline: it is the papers' GPU, at the papers' rates. Others show what
depends on the device.
"""
from dataclasses import dataclass

import reconstruct
from measurements import Measurements
from workloads import MODELS

# The names of the studies for the published models.
SHORT_NAMES = {"googlenet": "goo", "lenet": "le", "resnet50": "res", "ssd-mobilenetv1": "ssd", "vgg16": "vgg",
               "mnasnet1_0": "nas", "mobilenet_v2": "mob", "densenet161": "den", "bert": "be"}
# Those of the gpu-let preprint.
FIVE = ("goo", "le", "res", "ssd", "vgg")
RECONSTRUCTED = "reconstructed 2080 Ti"


@dataclass(frozen=True)
class Variant:
    """Of the reconstruction. The headline's curve was fixed before anything was planned with it."""
    curve: str = "figure-4"
    seed: int = 1

    @property
    def name(self):
        return f"{RECONSTRUCTED}, {'seed ' + str(self.seed) if self.curve == 'figure-4' else 'curve ' + self.curve}"


HEADLINE = Variant()
SEEDS = tuple(Variant(seed=seed) for seed in (1, 2, 3))
SENSITIVITY = (Variant("A"), Variant("B"))


def reconstructed(measured, variant=HEADLINE):
    """The imported measurements of a variant."""
    work = measured.work / f"2080ti-{variant.curve}-{variant.seed}"
    reconstruct.write_tables(work / "tables", variant.curve, variant.seed, SHORT_NAMES)
    made = Measurements(work / "tables", measured.gpulet, work, "papers")
    made.import_profiles()
    assert set(MODELS) == set(made.latency)
    return made
