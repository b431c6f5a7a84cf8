"""The papers' applications as graphs of models with one objective (gpulet and gpu-let, figure 12)."""
import json
from dataclasses import dataclass

from measurements import Scene


@dataclass(frozen=True)
class Call:
    """A node of the graph in a demand file: `count` calls of a model at the same time."""
    name: str
    model: str
    count: int = 1
    after: tuple = ()  # names of earlier nodes

    def node(self):
        return {"name": self.name, "model": self.model, "count": self.count,
                **({"after": list(self.after)} if self.after else {})}


@dataclass(frozen=True)
class Application:
    """Its objective is twice the longest latency of a model: that model's own (section 6.1 of both papers)."""
    name: str
    slowest: str
    calls: tuple

    @property
    def models(self):
        return tuple(dict.fromkeys(call.model for call in self.calls))


APPLICATIONS = {one.name: one for one in (
    Application("game", "res", (Call("digits", "le", 6), Call("scene", "res"))),
    Application("traffic", "ssd", (Call("detect", "ssd"), Call("vehicle", "goo", after=("detect",)),
                                   Call("person", "vgg", after=("detect",)))))}


def scene(measured, application, devices):
    """The input files of commands that serve the application alone. Its models have no clients of their own, so they have
    no objective but the application's."""
    plain = measured.scene(application.name, application.models, devices)
    slo_ms = measured.slo_ms(application.slowest)
    demand = {"models": [{"name": model, "rate": 0, "slo_ms": slo_ms, "max_batch": measured.largest_batch(model)}
                         for model in application.models],
              "applications": [{"name": application.name, "rate": 0, "slo_ms": slo_ms,
                                "nodes": [call.node() for call in application.calls]}]}
    return Scene(plain.cluster, plain.profiles,
                 measured.write(f"demand-application-{application.name}.json", json.dumps(demand, indent=1) + "\n"))


def scenarios(measured, name, application, rates):
    """A CSV of requests to the application per second."""
    return measured.write(f"scenarios/{name}.csv", "\n".join([application.name, *(f"{rate:.10g}" for rate in rates)]) + "\n")
