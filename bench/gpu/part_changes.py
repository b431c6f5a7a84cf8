"""The part that changes shares under load."""
from __future__ import annotations

import threading
import time

from gpu_site import Document, Site
from mixes import missed, mix, objectives, scaled, violation
from part_policies import schedulable_scale, with_small_inputs
from results import Check, NotAvailable

CHANGES = 10
VISIT_SECONDS = 5.0  # long enough for a frontend to believe a rate
# Rates of the steady model and of the visitor, as fractions of those that can be scheduled beside each other.
STEADY, FEWEST, MOST = 0.3, 0.1, 1.0
# Objectives in milliseconds of the time from decision to serving, at the 95th percentile.
AIMS_MS = {"green": 100.0, "mps": 1000.0}
# Shares that come again, and those beside them, are ready under MPS.
PARKING: Document = {"memory_mb": 32768, "load_ahead": "on"}
MOST_LATE = 0.001  # of the requests of a model that no change concerns


class Watch:
    """The duration of each plan change from decision to serving, as reported by the frontend."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.took_ms: list[float] = []
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.look)

    def look(self) -> None:
        epoch = None
        while not self.over.is_set():
            status = self.site.status()
            if status and not status["frontend"]["reorganising"]:
                if epoch is not None and status["frontend"]["epoch"] > epoch:
                    took_ms = float(status["reorganisations"]["last_took_ms"])
                    if took_ms >= 1:  # the others needed no new gpulet
                        self.took_ms.append(took_ms)
                epoch = status["frontend"]["epoch"]
            self.over.wait(0.05)

    def __enter__(self) -> "Watch":
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        self.thread.join()


def in_words(model: Document) -> str:
    kinds = [f"{model[kind]} {kind}" for kind in ("late", "dropped", "errors") if model[kind]]
    return f"{missed(model) / max(1, model['offered']):.2%} of {model['offered']}" + (f" ({', '.join(kinds)})" if kinds else "")


def change_shares(check: Check, partitioning: str, models: list[Document], seconds: float) -> None:
    wanted = mix(check, partitioning, models, (1.0, 1.0))
    visit_seconds = VISIT_SECONDS if not check.options.quick else VISIT_SECONDS / 2
    begun = time.monotonic()
    plan = check.plan(partitioning, wanted)
    plan.period_s = visit_seconds / 2.5
    plan.parking = PARKING
    wanted = scaled(wanted, schedulable_scale(check, plan, wanted, check.out / f"changes-{partitioning}") or 1)
    plan.models = scaled(wanted, STEADY)
    with Site(check.programs, check.out / f"changes-{partitioning}", plan) as site:
        site.wait_until_serving(max(1.0, check.left()))
        workloads = [site.workload(model["name"], [{"name": model["name"], "rate": model["rate"], "slo_ms": model["slo_ms"],
                                                     "arrivals": "poisson"}]) for model in wanted]
        site.load(workloads[0], 1, STEADY)
        visits = max(2, min(CHANGES, int((begun + seconds - time.monotonic() - 2) / visit_seconds)))
        steady: list[list[Document]] = []
        with Watch(site) as watch:
            thread = threading.Thread(target=lambda: steady.append(site.load(workloads[0], visits * visit_seconds, STEADY)))
            thread.start()
            # The visitor's rate rises and falls, and with it the shares.
            for visit in range(visits):
                site.load(workloads[1], visit_seconds - 0.2, FEWEST if visit % 2 == 0 else MOST)
            thread.join()
    took = sorted(watch.took_ms)
    if not took:
        check.add(f"change of shares, {partitioning}", f"none was seen in {visits} changes of rates")
    else:
        late = took[min(len(took) - 1, int(0.95 * len(took)))]
        aim = AIMS_MS.get(partitioning)
        check.add(f"decision to serving, {partitioning}",
                  f"median {took[(len(took) - 1) // 2]:.0f} ms, 95th percentile {late:.0f} ms, worst {took[-1]:.0f} ms of {len(took)}",
                  f"95th percentile {aim:.0f} ms" if aim else "", None if aim is None else late <= aim)
    if steady:
        check.add(f"late requests of a steady model meanwhile, {partitioning}", in_words(steady[0][0]), f"at most {MOST_LATE:.1%}",
                  None if check.options.dry_run else violation(steady[0]) <= MOST_LATE)


def changes(check: Check) -> None:
    """Changes shares ten times under load; measures the duration, and the late requests of a steady model."""
    begun, seconds = time.monotonic(), check.left()
    partitionings = sorted(check.options.partitionings)  # green first: it needs least time
    any_measured = False
    for index, partitioning in enumerate(partitionings, 1):
        models = with_small_inputs(check, objectives(check, partitioning, factor=6)[:2])
        if len(models) < 2:
            check.add(f"change of shares, {partitioning}", "not available: fewer than two models were profiled")
            continue
        any_measured = True
        change_shares(check, partitioning, models, begun + seconds * index / len(partitionings) - time.monotonic())
    if not any_measured:
        raise NotAvailable("fewer than two models were profiled; run the part profile first")
