"""The measurements of scripts/gpu-check after the build. Standard library only.

Parts run in the order of their worth. Each gets its part of the time, writes its result when it ends, and is cut at its
deadline. The check ends at its own deadline and leaves no process.
"""
from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, Callable

sys.path.insert(0, str(Path(__file__).resolve().parent))
# The modules beside this file.
from gpu_site import SIZES, Document, Programs, read, write  # noqa: E402
from part_changes import changes  # noqa: E402
from part_fit import fit  # noqa: E402
from part_formats import formats  # noqa: E402
from part_path import path  # noqa: E402
from part_policies import policies  # noqa: E402
from part_profile import answers, profile, shares  # noqa: E402
from results import LARGEST_BUNDLE, STATES, Check, Cut, NotAvailable, PartResult, Row, bundle_bytes, machine, save, table  # noqa: E402

# In the order of their worth, with their shares of the time.
PARTS: list[tuple[Callable[[Check], None], float]] = [
    (profile, 20), (fit, 1), (policies, 18), (path, 3), (changes, 6), (formats, 2), (shares, 2), (answers, 2)]
MODELS = ("bert", "densenet161", "resnet50", "ssd_mobilenet_v1", "vgg16")  # the five that are measured, if they are there
MOST_MODELS = 5
# After the deadline of a part, until its processes are killed, and after that of the check.
GRACE_SECONDS = 5
LAST_GRACE_SECONDS = 45


def chosen_models(options: argparse.Namespace) -> list[Document]:
    """Entries of the models file whose files exist, the five of MODELS first."""
    folder = options.models.resolve().parent
    models = [{**model, "file": os.path.normpath(folder / model["file"]), "rate": 0, "max_batch": max(options.batches)}
              for model in read(options.models)["models"] if (folder / model["file"]).exists()]
    order = {name: place for place, name in enumerate(MODELS)}
    return sorted(models, key=lambda model: order.get(model["name"], len(order)))


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=Path, required=True)
    parser.add_argument("--proxy", type=Path)
    parser.add_argument("--models", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--gpu", default="0")
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--partitionings", type=lambda text: text.split(","), default=["mps", "green"])
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--parts", type=lambda text: text.split(","), default=[],
                        help=", ".join(part.__name__ for part, _ in PARTS))
    parser.add_argument("--keep", action="store_true", help="add to the results of an earlier run")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--simulated", type=Path, help="a dry run on the device that this profile simulates")
    options = parser.parse_args()
    options.dry_run = options.simulated is not None
    if options.dry_run:
        options.quick = True
        options.simulated = options.simulated.resolve()
        options.partitionings = ["simulated"]
    options.batches = [1, 4] if options.quick else [1, 4, 16, 32]
    options.pair_batches = [1, 4] if options.quick else [4, 32]  # few, for more pairs of models
    options.sizes = SIZES
    options.seconds_per_cell = 0.02 if options.quick else 0.1
    options.seconds_per_pair_run = 0.02 if options.quick else 0.09  # a pair takes about 0.3 s
    options.seconds_per_probe = 1.0 if options.quick else 2.5
    options.least_slo_ms = 60.0 if options.quick else 10.0
    return options


class Deadline:
    """Ends a part that does not end by itself: first by an exception in the main thread, then by killing its processes."""

    def __init__(self, check: Check, seconds: float) -> None:
        self.check, self.seconds = check, seconds
        self.killer = threading.Timer(seconds + GRACE_SECONDS, check.programs.kill_all)

    def __enter__(self) -> None:
        signal.setitimer(signal.ITIMER_REAL, max(0.01, self.seconds))
        self.killer.daemon = True
        self.killer.start()

    def __exit__(self, *_: object) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        self.killer.cancel()


def cut(*_: Any) -> None:
    raise Cut


def run_part(check: Check, part: Callable[[Check], None], seconds: float) -> PartResult:
    result = check.current = PartResult(part.__name__, "ran")
    check.results[result.part] = result
    begun = time.monotonic()
    check.part_end = begun + seconds
    print(f"==> {result.part}: {part.__doc__} ({seconds:.0f} s)", flush=True)
    try:
        with Deadline(check, seconds):
            part(check)
    except Cut:
        result.state, result.reason = "cut", f"its {seconds:.0f} s were over"
    except NotAvailable as missing:
        result.state, result.reason = "not available", str(missing)
    except (RuntimeError, OSError, ValueError, KeyError, IndexError, StopIteration, subprocess.SubprocessError) as failure:
        result.state, result.reason = "failed", f"{type(failure).__name__}: {failure}"
    result.seconds = round(time.monotonic() - begun, 1)
    print(f"    {result.state}{': ' + result.reason if result.reason else ''} ({result.seconds:.0f} s)", flush=True)
    return result


def watch_over(check: Check) -> None:
    """Ends this process where nothing else does: the results of finished parts are written already."""

    def end() -> None:
        check.programs.kill_all()
        print("gpu-check: ended at its deadline", flush=True)
        os._exit(3)

    timer = threading.Timer(max(0.0, check.deadline - time.monotonic()) + LAST_GRACE_SECONDS, end)
    timer.daemon = True
    timer.start()


def earlier_results(file: Path) -> dict[str, PartResult]:
    if not file.exists():
        return {}
    return {one["part"]: PartResult(**{**one, "rows": [Row(**row) for row in one["rows"]]}) for one in read(file)["parts"]}


def run_parts(check: Check) -> None:
    chosen = [(part, weight) for part, weight in PARTS if not check.options.parts or part.__name__ in check.options.parts]
    for part, _ in chosen:
        check.results[part.__name__] = PartResult(part.__name__, reason="the time was over")
    for index, (part, weight) in enumerate(chosen):
        left = check.deadline - time.monotonic()
        if left < 1:
            break
        run_part(check, part, left * weight / sum(later for _, later in chosen[index:]))
        save(check)


def main() -> int:
    options = parse_arguments()
    # Raise an exception, so that every site stops its daemons.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    signal.signal(signal.SIGALRM, cut)
    deadline = time.monotonic() + options.seconds
    out = options.out.resolve()
    logs = out / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    earlier = earlier_results(out / "learned" / "results.json") if options.keep else {}
    if not options.keep:
        shutil.rmtree(out / "learned", ignore_errors=True)
    (out / "learned").mkdir(exist_ok=True)
    models = chosen_models(options)
    if not models:
        print(f"gpu-check: none of the models of {options.models} is exported", file=sys.stderr)
        return 1
    programs = Programs(options.programs.resolve(), (options.proxy or options.programs / "gpulet-proxy").resolve(), logs)
    check = Check(options, programs, out, models[:MOST_MODELS], deadline, earlier)
    write(check.models_file, {"models": models})
    options.machine = machine(check)
    watch_over(check)
    try:
        run_parts(check)
    finally:
        programs.kill_all()
        save(check)
    results = list(check.results.values())
    print("\n" + table(results))
    size = bundle_bytes(check)
    print(f"results: {check.learned}, {size / 1e6:.1f} MB; "
          + ", ".join(f"{sum(one.state == state for one in results)} {state}" for state in STATES))
    if size > LARGEST_BUNDLE:
        print(f"gpu-check: the results exceed {LARGEST_BUNDLE >> 20} MiB", file=sys.stderr)
        return 1
    missed = any(row.verdict == "MISSED" for one in results for row in one.rows)
    return 1 if missed or any(one.state == "failed" for one in results) else 0


if __name__ == "__main__":
    sys.exit(main())
