"""The papers' workloads, with measured models, and random workloads."""
import random
from dataclasses import dataclass

MODELS = ("resnet50", "vgg19", "densenet121", "inception", "mobilenet")


@dataclass(frozen=True)
class Workload:
    name: str
    rates: tuple      # of MODELS, in proportion
    stands_for: str

    @property
    def shape(self):
        """Parts of 1 request per second."""
        return tuple(rate / sum(self.rates) for rate in self.rates)

    def at(self, scale):
        """The rates that add up to `scale` requests per second."""
        return tuple(part * scale for part in self.shape)


def of(name, stands_for, **rates):
    return Workload(name, tuple(rates.get(model, 0) for model in MODELS), stands_for)


# Where a paper's model was not measured, the nearest in kind and cost stands in: GoogLeNet's successor inception for
# GoogLeNet, mobilenet for LeNet (the shortest) and for SSD-MobileNet (its backbone), densenet121 for SSD where
# mobilenet is taken, vgg19 for VGG-16 (the co-runs of vgg16 were not measured).
WORKLOADS = (
    of("equal", "gpu-let table 5", resnet50=50, vgg19=50, densenet121=50, inception=50, mobilenet=50),
    of("short-skew", "gpu-let table 5", resnet50=100, vgg19=50, densenet121=50, inception=100, mobilenet=100),
    of("long-skew", "the reverse of short-skew", resnet50=50, vgg19=100, densenet121=100, inception=50, mobilenet=50),
    of("long-only", "gpu-let table 5", resnet50=100, vgg19=100, densenet121=100),
    of("scen2", "gpulet table 4", densenet121=100, vgg19=100),
    of("scen3", "gpulet table 4", mobilenet=100, resnet50=100, vgg19=100),
    of("game", "gpulet figure 12", mobilenet=6, resnet50=1),
    of("traffic", "gpulet figure 12", mobilenet=1, inception=1, vgg19=1),
)


def random_workloads(count, seed=17):
    """Each model takes part with a probability of 3/4, with a weight between 5 and 100."""
    source = random.Random(seed)
    drawn = []
    while len(drawn) < count:
        rates = tuple(source.randint(5, 100) if source.random() < 0.75 else 0 for _ in MODELS)
        if sum(rate > 0 for rate in rates) >= 2:
            drawn.append(Workload(f"random-{len(drawn) + 1}", rates, "random"))
    return tuple(drawn)
