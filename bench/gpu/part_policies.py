"""The part that compares policies by the requests per second that keep their objectives."""
from __future__ import annotations

import concurrent.futures
import csv
import json
import time
from dataclasses import asdict
from pathlib import Path

from gpu_site import SIZES, Document, Plan, Site, write
from mixes import Found, Probe, mix, objectives, probe_of, scaled, search
from results import Check, NotAvailable, last_line

POLICIES = ("sbp", "greedy-best-fit", "static-equal", "elastic", "auto")
# Shares of the device's time of models with short and with long batches.
MIXES = {"equal": (1.0, 1.0), "short-skew": (3.0, 1.0)}
SCHEDULE_STEPS = 8  # of a bisection between 0 and 2 times the device's time
PERIOD_S = 1.0  # in which a frontend looks at its rates
# A frontend that takes over gpulets goes on with the rates of the plan before, so a load tells it the new ones. Its estimates
# follow within three of their time constants of two seconds.
TELL_SECONDS = 6.0
BYTES_OF_LARGE_INPUT = 64 << 10


def policies(check: Check) -> None:
    """Searches the highest rates within objectives of five policies on two mixes of the models."""
    partitioning = serving_partitioning(check)
    profiles = profiles_of_policies(check, partitioning)
    models = with_small_inputs(check, objectives(check, partitioning))
    if len(models) < 2:
        raise NotAvailable("fewer than two models were profiled; run the part profile first")
    check.add("models of the policies", f"{partitioning}: " + ", ".join(f"{one['name']} ({one['slo_ms']:.0f} ms)" for one in models))
    runs = [(name, policy) for name in MIXES for policy in POLICIES]
    found: dict[str, dict[str, Document]] = {name: {} for name in MIXES}
    for name, weights in MIXES.items():
        wanted = mix(check, partitioning, models, weights)
        plan = check.plan(partitioning, scaled(wanted, 0.1))
        plan.profiles, plan.period_s = profiles, PERIOD_S
        with Site(check.programs, check.out / "policies" / name, plan) as site:
            site.wait_until_serving(max(1.0, check.left()))
            for policy in POLICIES:
                left = len(runs) - runs.index((name, policy))
                until = time.monotonic() + check.left() / left
                plan.policy = policy
                planned = [one["planned_scale"] for one in found[name].values() if one.get("planned_scale")]
                found[name][policy] = compare(check, site, plan, wanted, f"{name}, {policy}", until, min(planned, default=0.2))
                write(check.learned / "policies.json", found)  # a cut part keeps these
    add_gains(check, found)


def serving_partitioning(check: Check) -> str:
    """`green` changes shares without loading models again, so that more rates can be tried."""
    return "green" if "green" in check.options.partitionings else check.options.partitionings[0]


def profiles_of_policies(check: Check, partitioning: str) -> Path:
    """The measured profile. Pairs were measured under the first partitioning; others get its slowdowns and utilisation."""
    first = check.options.partitionings[0]
    if partitioning == first or not (check.profile(first) / "interference.csv").exists():
        return check.profiles(partitioning)
    before, now = check.latencies(first), check.latencies(partitioning)
    source, folder = check.profile(first), check.out / "policies" / "profiles"
    folder.mkdir(parents=True, exist_ok=True)
    pairs = folder / "pairs.csv"
    with open(source / "interference.csv", encoding="utf-8", newline="") as stream, open(pairs, "w", encoding="utf-8") as out:
        rows = csv.DictReader(stream)
        out.write(",".join(rows.fieldnames or []) + "\n")
        for row in rows:
            cell = row["model"], int(row["partition"]), int(row["batch"])
            alone = now.get(cell[0], {}).get(cell[1], {}).get(cell[2])
            if alone is not None:
                out.write(",".join(list(row.values())[:-1]) + f",{float(row['latency_ms']) / before[cell[0]][cell[1]][cell[2]] * alone}\n")
    utilization = ["--utilization", source / "utilization.csv"] if (source / "utilization.csv").exists() else []
    answer = check.programs.run("gpulet", "profile", "import", "--name", check.profile(partitioning).name, "--latency",
                                check.profile(partitioning) / "latency.csv", "--interference", pairs, *utilization, "--out",
                                folder / "used", timeout=30, log="policies")
    if answer.returncode != 0:
        raise RuntimeError(last_line(answer.stderr))
    return folder / "used"


def with_small_inputs(check: Check, models: list[Document]) -> list[Document]:
    """The same networks, whose large inputs are made on the GPU from one number: the path carries few bytes."""
    large = [model for model in models if input_bytes(model) > BYTES_OF_LARGE_INPUT and model["file"].endswith(".pt")]
    if check.options.dry_run or not large:
        return models
    with concurrent.futures.ThreadPoolExecutor(len(models)) as pool:
        return list(pool.map(lambda model: with_small_input(check, model) if model in large else model, models))


def with_small_input(check: Check, model: Document) -> Document:
    folder = check.out / "small-inputs"
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{model['name']}.pt"
    if not file.exists():
        answer = check.programs.run_command(
            [check.options.python, "-B", Path(__file__).with_name("small_inputs.py"), model["file"],
             json.dumps([one["shape"] for one in model["inputs"]]), file], timeout=60, log="small-inputs")
        if answer.returncode != 0:
            check.add(f"small inputs of {model['name']}", "not available: " + last_line(answer.stderr))
            return model
    return {**model, "file": str(file), "inputs": [{"name": "number", "type": "FP32", "shape": [1]}]}


def input_bytes(model: Document) -> int:
    elements = 0
    for tensor in model["inputs"]:
        count = 1
        for size in tensor["shape"]:
            count *= size
        elements += count
    return 4 * elements


def schedulable_scale(check: Check, plan: Plan, wanted: list[Document], work: Path) -> float:
    """The highest factor at which the policy can schedule the mix; 0 if none."""
    cluster = write(work / "cluster.json", {"nodes": [{"name": "n0", "devices": [
        {"type": plan.device["type"], "count": 1, "partitioning": plan.device["partitioning"], "sizes": SIZES,
         "max_partitions": len(SIZES)}]}]})
    low, high = 0.0, 2.0
    for _ in range(SCHEDULE_STEPS):
        scale = (low + high) / 2
        demand = write(work / "demand.json", {"models": [
            {key: model[key] for key in ("name", "rate", "slo_ms", "max_batch")} for model in scaled(wanted, scale)]})
        answer = check.programs.run("gpulet", "schedule", "--json", "--cluster", cluster, "--profiles", plan.profiles, "--demand", demand,
                                    "--policy", plan.policy, timeout=max(1.0, check.left()), log="schedule")
        fits = answer.returncode == 0 and json.loads(answer.stdout)["schedulable"]
        low, high = (scale, high) if fits else (low, scale)
    return low


def compare(check: Check, site: Site, plan: Plan, wanted: list[Document], what: str, until: float, fallback: float) -> Document:
    """The result of one policy on one mix. `fallback`: the rate to try first where the policy can schedule none."""
    planned = schedulable_scale(check, plan, wanted, site.work)
    seconds = check.options.seconds_per_probe
    workload = site.workload("mix", [
        {"name": model["name"], "rate": model["rate"], "slo_ms": model["slo_ms"], "arrivals": "poisson"} for model in wanted])

    def try_scale(scale: float) -> Probe:
        site.load(workload, TELL_SECONDS, scale)
        site.wait_until_serving(max(1.0, check.left()))
        return probe_of(scale, site.load(workload, seconds, scale), seconds)

    begun, tries = time.monotonic(), 0

    def has_time() -> bool:
        nonlocal tries
        mean = (time.monotonic() - begun) / tries if tries else 0
        tries += 1
        return tries == 1 or time.monotonic() + mean < until

    try:
        site.replan(plan)
        site.wait_until_serving(max(1.0, check.left()))
        found = search(try_scale, planned if planned > 0 else fallback, has_time)
    except RuntimeError as failure:
        check.add(what, f"failed: {failure}", good=False)
        return {"failed": str(failure)}
    add_found(check, what, found, planned)
    low, high = found.interval()
    return {"planned_scale": planned, "requests_per_s": found.low.rate if found.low else 0, "interval": [low, high if high < 1e12 else None],
            "probes": [asdict(probe) for probe in found.probes]}


def add_found(check: Check, what: str, found: Found, planned: float) -> None:
    low, high = found.interval()
    upper = f"{high:.0f}" if high < 1e12 else "not tried"
    if found.low is None:
        check.add(what, f"no rate kept of {len(found.probes)}; planned at {planned:.2f} of the device's time")
        return
    check.add(what, f"{found.low.rate:.0f}/s ({low:.0f} to {upper}), {len(found.probes)} rates, "
                    f"{found.low.scale:.2f} of the device's time, planned {planned:.2f}")


def add_gains(check: Check, found: dict[str, dict[str, Document]]) -> None:
    """How much more elastic serves than the baselines, over the mixes where both kept a rate."""
    for other in POLICIES[:3]:
        gains = [one["elastic"]["requests_per_s"] / one[other]["requests_per_s"] - 1 for one in found.values()
                 if one.get("elastic", {}).get("requests_per_s") and one.get(other, {}).get("requests_per_s")]
        check.add(f"elastic over {other}", f"{sum(gains) / len(gains):+.1%}, mean of {len(gains)} mixes" if gains else "not known")
