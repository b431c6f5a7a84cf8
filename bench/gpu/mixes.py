"""Mixes of models with their objectives and rates, and the search for the highest rate that keeps them."""
from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Callable

from gpu_site import Document
from part_profile import is_profiled
from results import Check

MOST_VIOLATIONS = 0.01
STEP = 1.15  # until a rate is kept and a higher one is not
PRECISION = 1.02
Z = 1.96  # of a 95 % interval


def objectives(check: Check, partitioning: str, factor: float = 2.5) -> list[Document]:
    """The profiled models; an objective is a multiple of the largest batch's latency on the whole device."""
    models = []
    for model in check.models:
        cells = check.latencies(partitioning).get(model["name"], {}).get(100)
        if cells and is_profiled(check, partitioning, model["name"]):
            batch = min(max(cells), model["max_batch"])
            models.append({**model, "max_batch": batch, "slo_ms": round(max(check.options.least_slo_ms, factor * cells[batch]), 1)})
    return models


def fastest_ms(check: Check, partitioning: str, model: Document) -> float:
    """The least milliseconds of the whole device for a request."""
    return min(ms / batch for batch, ms in check.latencies(partitioning)[model["name"]][100].items())


def mix(check: Check, partitioning: str, models: list[Document], weights: tuple[float, float]) -> list[Document]:
    """The models with rates that take those fractions of the device's time (of short and long batches), in total all of it."""
    one = {model["name"]: fastest_ms(check, partitioning, model) for model in models}
    middle = sorted(one.values())[(len(one) - 1) // 2]
    parts = {name: weights[0] if ms <= middle else weights[1] for name, ms in one.items()}
    total = sum(parts.values())
    return [{**model, "rate": round(1000 / one[model["name"]] * parts[model["name"]] / total, 3)} for model in models]


def scaled(models: list[Document], scale: float) -> list[Document]:
    return [{**model, "rate": model["rate"] * scale} for model in models]


def missed(model: Document) -> int:
    return model["late"] + model["dropped"] + model["errors"]


def violation(models: list[Document]) -> float:
    """Of the worst model."""
    return max((missed(model) / model["offered"] if model["offered"] else 0) for model in models)


def wilson(bad: int, count: int) -> tuple[float, float]:
    """The 95 % interval of a fraction."""
    if count == 0:
        return 0.0, 1.0
    part, spread = bad / count, Z * Z / count
    middle = (part + spread / 2) / (1 + spread)
    half = Z / (1 + spread) * math.sqrt(part * (1 - part) / count + spread / (4 * count))
    return max(0.0, middle - half), min(1.0, middle + half)


@dataclass
class Probe:
    scale: float
    rate: float  # requests per second within their objectives
    violation: float
    surely_kept: bool
    surely_missed: bool

    @property
    def kept(self) -> bool:
        return self.violation <= MOST_VIOLATIONS


def probe_of(scale: float, rows: list[Document], seconds: float) -> Probe:
    intervals = [wilson(missed(row), row["offered"]) for row in rows]
    return Probe(scale, sum(row["served"] - row["late"] for row in rows) / seconds, violation(rows),
                 all(high <= MOST_VIOLATIONS for _, high in intervals), any(low > MOST_VIOLATIONS for low, _ in intervals))


@dataclass
class Found:
    """`low` kept the objectives at the highest rate that did, `high` is the lowest above it that did not."""

    low: Probe | None = None
    high: Probe | None = None
    probes: list[Probe] = field(default_factory=list)

    def add(self, probe: Probe) -> None:
        self.probes.append(probe)
        if probe.kept and (self.low is None or probe.scale > self.low.scale):
            self.low = probe
        if not probe.kept and (self.high is None or probe.scale < self.high.scale):
            self.high = probe

    def next_scale(self, start: float) -> float | None:
        """Empty once the border is known to PRECISION."""
        if self.low and self.high:
            if self.high.scale <= self.low.scale * PRECISION:
                return None
            return math.sqrt(self.low.scale * self.high.scale)
        if self.low:
            return self.low.scale * STEP
        return self.high.scale / STEP if self.high else start

    def interval(self) -> tuple[float, float]:
        """Of the rate: from what was surely kept to what was surely missed, as far as that was tried."""
        kept = [one.rate for one in self.probes if one.surely_kept]
        missed_at = [one.scale for one in self.probes if one.surely_missed]
        low = max(kept, default=0.0)
        if self.low is None:
            return low, min((one.rate for one in self.probes), default=0.0)
        above = min((scale for scale in missed_at if scale > self.low.scale), default=math.inf)
        return min(low, self.low.rate), self.low.rate * above / self.low.scale


def search(try_scale: Callable[[float], Probe], start: float, has_time: Callable[[], bool]) -> Found:
    """Bisects for the border between rates that are kept and rates that are not."""
    found = Found()
    while has_time():
        scale = found.next_scale(start)
        if scale is None or scale < 0.01:
            break
        found.add(try_scale(scale))
    return found
