"""The part that measures one network in each file format."""
from __future__ import annotations

import csv
import json
from pathlib import Path

from gpu_site import Document, write
from part_profile import saturating
from results import Check, last_line

FORMATS = {".pt": "TorchScript", ".pt2": "AOTInductor", ".onnx": "ONNX"}


def served_formats(check: Check) -> dict[str, Document]:
    """What `gpulet devices` says of each format of this machine."""
    answer = check.programs.run("gpulet", "devices", "--json", timeout=30, log="devices")
    if answer.returncode != 0:
        return {}
    (check.learned / "devices.json").write_text(answer.stdout, encoding="utf-8")
    document = json.loads(answer.stdout)
    listed = document.get("serving", document).get("formats", [])
    return {one["format"]: one for one in listed}


def missing(check: Check, name: str, file: Path, served: dict[str, Document]) -> str:
    """Why the format cannot be measured; empty if it can."""
    if not file.exists():
        return f"there is no file {file.name}"
    if check.options.dry_run:
        return ""  # the simulated proxy reads no file
    known = served.get(name)
    if known is None and name != "TorchScript":
        return "this version of gpulet does not serve it"
    return "" if known is None or known["possible"] else known["reason"]


def export_onnx(check: Check, model: Document, file: Path) -> None:
    """Writes the ONNX file beside the TorchScript file, if that is one of the example models."""
    script = Path(__file__).resolve().parents[2] / "scripts" / "export_models.py"
    if file.exists() or check.options.dry_run or file.parent != script.parents[1] / "models":
        return
    check.programs.run_command([check.options.python, script, "--only", model["name"], "--format", "onnx"],
                               timeout=max(2.0, check.left() / 2), log="export-onnx")


def measure(check: Check, model: Document, file: Path, partitioning: str) -> str:
    """Returns the latencies, or why there are none."""
    out = check.out / "formats" / file.suffix[1:]
    models = write(out / "models.json", {"models": [{**model, "file": str(file)}]})
    # Programs beside each other are chosen by format; a given proxy serves only the first format.
    proxy = ["--proxy", check.programs.proxy] if check.options.dry_run or file.suffix == ".pt" else []
    answer = check.programs.run(
        "gpulet", "profile", "run", "--device", check.measured_device, "--partitioning", partitioning, "--models", models, "--only",
        model["name"], "--replace", "--sizes", 100, "--batches", ",".join(map(str, check.options.batches)), "--seconds-per-cell",
        check.options.seconds_per_cell, "--no-counters", *proxy, "--out", out / "profiles", timeout=max(2.0, check.left() / 2),
        log=f"format-{file.suffix[1:]}")
    if answer.returncode != 0:
        return "not available: " + last_line(answer.stderr)
    with open(next((out / "profiles").glob("*/latency.csv")), encoding="utf-8", newline="") as stream:
        rows = sorted(csv.DictReader(stream), key=lambda row: int(row["batch"]))
    return ", ".join(f"x{row['batch']} {float(row['latency_ms']):.2f} ms" for row in rows)


def formats(check: Check) -> None:
    """Measures one network as TorchScript, AOTInductor package and ONNX, as far as there are files and programs."""
    model, served = saturating(check), served_formats(check)
    export_onnx(check, model, Path(model["file"]).with_suffix(".onnx"))
    for suffix, name in FORMATS.items():
        file = Path(model["file"]).with_suffix(suffix)
        reason = missing(check, name, file, served)
        figure = f"not available: {reason}" if reason else measure(check, model, file, check.options.partitionings[0])
        check.add(f"{model['name']} as {name}", figure)
