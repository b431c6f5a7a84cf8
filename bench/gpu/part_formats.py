"""The part that measures one network in each file format."""
from __future__ import annotations

import csv
import json
from pathlib import Path

from gpu_site import Document, write
from part_profile import saturating
from results import Check, last_line

ROOT = Path(__file__).resolve().parents[2]
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


def can_be_exported(check: Check, file: Path) -> bool:
    """Whether the file is missing, and its model is one of the examples, which scripts/export_models.py makes."""
    return not (file.exists() or check.options.dry_run) and file.parent == ROOT / "models"


def export_onnx(check: Check, model: Document, file: Path) -> None:
    """Writes the ONNX file beside the TorchScript file."""
    if can_be_exported(check, file):
        check.programs.run_command([check.options.python, ROOT / "scripts/export_models.py", "--only", model["name"], "--format", "onnx"],
                                   timeout=max(2.0, check.left() / 2), log="export-onnx")


def export_package(check: Check, model: Document, file: Path) -> None:
    """Compiles the network for this GPU, beside the TorchScript file."""
    if not can_be_exported(check, file):
        return
    tensor = model["inputs"][0]
    described = f"{tensor['name']}:{tensor['type']}:{','.join(map(str, tensor['shape']))}"
    check.programs.run_command(
        ["env", f"EXAMPLE_MODEL={model['name']}", check.programs.folder / "gpulet", "export", "--python", check.options.python, "--module",
         f"{ROOT / 'bench/gpu/example_module.py'}:make", "--input", described, "--max-batch", model.get("max_batch", 32), "--out", file],
        timeout=max(2.0, check.left() / 2), log="export-pt2")


def measure(check: Check, model: Document, file: Path, partitioning: str) -> str:
    """Returns the latencies, or why there are none."""
    out = check.out / "formats" / file.suffix[1:]
    models = write(out / "models.json", {"models": [{**model, "file": str(file)}]})
    # Programs beside each other are chosen by format; a given proxy serves only the first format.
    proxy = ["--proxy", check.programs.proxy] if check.options.dry_run or file.suffix == ".pt" else []
    native = ["--native-models"] if file.suffix == ".pt2" else []
    answer = check.programs.run(
        "gpulet", "profile", "run", "--device", check.measured_device, "--partitioning", partitioning, "--models", models, "--only",
        model["name"], "--replace", "--sizes", 100, "--batches", ",".join(map(str, check.options.batches)), "--seconds-per-cell",
        check.options.seconds_per_cell, "--no-counters", *proxy, *native, "--out", out / "profiles", timeout=max(2.0, check.left() / 2),
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
    if "AOTInductor" in served:
        export_package(check, model, Path(model["file"]).with_suffix(".pt2"))
    for suffix, name in FORMATS.items():
        file = Path(model["file"]).with_suffix(suffix)
        reason = missing(check, name, file, served)
        figure = f"not available: {reason}" if reason else measure(check, model, file, check.options.partitionings[0])
        check.add(f"{model['name']} as {name}", figure)
