"""The part that measures the path from load processes to the device."""
from __future__ import annotations

import json
import subprocess
from pathlib import Path

from gpu_site import Document, Site
from part_profile import saturating
from results import Check, NotAvailable, last_line

LOAD_PROCESSES = (1, 4)
BATCHES_IN_FLIGHT = 6  # of the largest size, over all load processes


def libtorch_loop(check: Check, model: Document, batch: int) -> float | None:
    """Requests per second of LibTorch called in a loop, its inputs on the GPU already."""
    if check.options.dry_run:
        return None
    shape = [batch, *model["inputs"][0]["shape"]]
    answer = check.programs.run_command(
        [check.options.python, Path(__file__).with_name("libtorch_loop.py"), model["file"], json.dumps(shape), check.options.gpu],
        timeout=60, log="libtorch-loop")
    if answer.returncode != 0:
        check.add("LibTorch in a loop", "not measured: " + last_line(answer.stderr))
        return None
    return batch * 1000 / float(answer.stdout)


def load_at_once(site: Site, workload: Path, seconds: float, count: int) -> float:
    """Requests per second that so many load processes were served."""
    command = [site.programs.folder / "gpulet", *site.load_command(workload, seconds)]
    running = [site.programs.start(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(count)]
    served = 0.0
    for process in running:
        output, errors = process.communicate(timeout=seconds + 30)
        if not output:
            raise RuntimeError(f"gpulet load failed: {errors.strip()}")
        served += json.loads(output)["models"][0]["served"] / seconds
    return served


def path(check: Check) -> None:
    """Compares the whole path with LibTorch in a loop, with one and four load processes."""
    model = saturating(check)
    partitioning = check.options.partitionings[0]
    cells = check.latencies(partitioning).get(model["name"], {}).get(100)
    if not cells:
        raise NotAvailable(f"{model['name']} is not profiled; run the part profile first")
    batch = max(cells)
    looped = libtorch_loop(check, model, batch)
    rates = {"a proxy": batch * 1000 / cells[batch]}
    # One gpulet with the whole GPU, like the loop.
    plan = check.plan(partitioning,
                      [{**model, "rate": 0.7 * rates["a proxy"], "slo_ms": 20 * cells[batch] + 100, "max_batch": batch}])
    plan.sizes = [100]
    with Site(check.programs, check.out / "path", plan) as site:
        site.wait_until_serving(max(1.0, check.left()))
        length = max(1.0, min(5.0, check.left() / 6))
        for count in LOAD_PROCESSES:
            in_flight = max(1, BATCHES_IN_FLIGHT * batch // count)
            closed = site.workload("closed", [
                {"name": model["name"], "slo_ms": 10000, "arrivals": "closed", "concurrency": in_flight}])
            load_at_once(site, closed, length / 4, count)
            name = f"the whole path, {count} load process{'es' if count > 1 else ''}"
            rates[name] = load_at_once(site, closed, length, count)
    for what, rate in rates.items():
        loss = "" if looped is None else f", {abs(1 - rate / looped):.1%} {'below' if rate < looped else 'above'} LibTorch in a loop ({looped:.0f}/s)"
        check.add(f"{model['name']} x{batch} through {what}", f"{rate:.0f}/s{loss}", "at most 5 % below",
                  None if looped is None else rate >= 0.95 * looped)
