"""The papers' workloads, with the models that stand in for theirs, and random workloads."""
import random
from dataclasses import dataclass

import stand_ins

MODELS = tuple(stand_ins.MODELS)


@dataclass(frozen=True)
class Workload:
    name: str
    rates: tuple      # of MODELS, in proportion
    source: str

    @property
    def shape(self):
        """Parts of 1 request per second."""
        return tuple(rate / sum(self.rates) for rate in self.rates)

    def at(self, scale):
        """The rates that add up to `scale` requests per second."""
        return tuple(part * scale for part in self.shape)


def of(name, source, **rates):
    return Workload(name, tuple(rates.get(model, 0) for model in MODELS), source)


GPULET = (
    of("scen1", "gpulet table 4", mob=1, be=1, nas=1, goo=1),
    of("scen2", "gpulet table 4", den=1, vgg=1),
    of("scen3", "gpulet table 4", mob=1, res=1, vgg=1),
    of("scen4", "gpulet table 4", ssd=1, nas=1, den=1),
    of("scen5", "gpulet table 4", le=1, ssd=1, nas=1, vgg=1),
)
GPU_LET = (
    of("equal", "gpu-let table 5", le=50, goo=50, res=50, ssd=50, vgg=50),
    of("long-only", "gpu-let table 5", res=100, ssd=100, vgg=100),
    of("short-skew", "gpu-let table 5", le=100, goo=100, res=100, ssd=50, vgg=50),
)
# As independent models with their own objectives; the papers' requests pass all models within one objective.
APPLICATIONS = (
    of("game", "figure 12", le=6, res=1),
    of("traffic", "figure 12", ssd=1, goo=1, vgg=1),
)
WORKLOADS = (*GPULET, *GPU_LET, *APPLICATIONS)


def random_workloads(count, seed=17):
    """Each model takes part with a probability of a half, with a weight between 5 and 100."""
    source = random.Random(seed)
    drawn = []
    while len(drawn) < count:
        rates = tuple(source.randint(5, 100) if source.random() < 0.5 else 0 for _ in MODELS)
        if sum(rate > 0 for rate in rates) >= 2:
            drawn.append(Workload(f"random-{len(drawn) + 1}", rates, "random"))
    return tuple(drawn)
