"""Exports a PyTorch module for gpulet, with any batch, and checks the file against the module. `gpulet export` starts this.

    python3 scripts/export_module.py --module net.py:make --input image:FP32:3,224,224 --output logits --out net.pt2

net.py is a Python file with a function `make` that takes no argument and returns the module, or the module and a tuple of
example inputs with one row for each request. With --input, the inputs are random: numbers from 0 to 1, whole numbers from 0
to 9, or as --range says. The batch is the first dimension of every tensor, and is left out of shapes.

A .pt2 package is compiled code (AOTInductor): it runs on the kind of device and of processor for which it was made, with
LibTorch 2.6 or later. --format torchscript makes a TorchScript archive by tracing, for any device and any LibTorch 1.13 or
later. OUT.json is a models file with the entry: its tensors, and objectives to be adapted.

Runs the code of the module's file. Needs PyTorch alone; for a package a C++ compiler, too. Exits 0 if the file gives the
module's outputs for batches of two sizes, 1 if it does not or cannot be made, 2 on bad arguments.
"""
import argparse
import importlib.util
import json
import os
import sys

try:
    import torch
except ImportError as error:
    sys.exit(f"gpulet export: this Python ({sys.executable}) has no PyTorch: {error}; name another one with --python")

TYPES = {"BOOL": torch.bool, "UINT8": torch.uint8, "INT8": torch.int8, "INT16": torch.int16, "INT32": torch.int32,
         "INT64": torch.int64, "FP16": torch.float16, "BF16": torch.bfloat16, "FP32": torch.float32, "FP64": torch.float64}
NAMES = {kind: name for name, kind in TYPES.items()}
FIRST_WITH_PACKAGES = (2, 6)


class BadArguments(Exception):
    pass


class Failed(Exception):
    pass


# ---- arguments

def parse_input(text):
    name, kind, shape = (text.rsplit(":", 2) + ["", ""])[:3]
    try:
        sizes = [int(size) for size in shape.split(",")] if shape else []
    except ValueError:
        sizes = [0]
    if not name or kind not in TYPES or any(size < 1 for size in sizes):
        raise BadArguments(f"--input {text!r}: write NAME:TYPE:SIZES without the batch, such as image:FP32:3,224,224; types: "
                           + ", ".join(TYPES))
    return name, TYPES[kind], sizes


def parse_range(text):
    name, _, numbers = text.rpartition(":")
    try:
        low, high = (float(number) for number in numbers.split(","))
    except ValueError:
        raise BadArguments(f"--range {text!r}: write NAME:LEAST,GREATEST, such as tokens:0,29999") from None
    if not name or not low <= high:
        raise BadArguments(f"--range {text!r}: write NAME:LEAST,GREATEST, such as tokens:0,29999")
    return name, (low, high)


def arguments_of(argv):
    parser = argparse.ArgumentParser(prog="gpulet export", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--module", required=True, metavar="FILE:FUNCTION")
    parser.add_argument("--input", action="append", default=[], metavar="NAME:TYPE:SIZES")
    parser.add_argument("--output", action="append", default=[], metavar="NAME")
    parser.add_argument("--range", action="append", default=[], metavar="NAME:LEAST,GREATEST")
    parser.add_argument("--format", choices=["pt2", "torchscript"], default="pt2")
    parser.add_argument("--device", default="", help="cpu or cuda (default: cuda where PyTorch has it)")
    parser.add_argument("--max-batch", type=int, default=32)
    parser.add_argument("--slo-ms", type=float, default=100)
    parser.add_argument("--name", default="")
    parser.add_argument("--tolerance", type=float, default=0.01, help="difference allowed, of an output's largest magnitude")
    parser.add_argument("--out", required=True)
    options = parser.parse_args(argv)
    if options.max_batch < 1:
        raise BadArguments(f"--max-batch {options.max_batch}: write a number from 1")
    if not options.device:
        options.device = "cuda" if torch.cuda.is_available() else "cpu"
    if options.device.split(":")[0] not in ("cpu", "cuda"):
        raise BadArguments(f"--device {options.device}: write cpu or cuda")
    return options


# ---- the module

def load_factory(place):
    path, _, function = place.rpartition(":")
    if not path or not function.isidentifier():
        raise BadArguments(f"--module {place}: write FILE:FUNCTION, such as net.py:make")
    if not os.path.isfile(path):
        raise BadArguments(f"--module {place}: there is no file {path}")
    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
    spec = importlib.util.spec_from_file_location("gpulet_exported", path)
    if spec is None:
        raise BadArguments(f"--module {place}: {path} is no Python file; its name has to end in .py")
    loaded = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = loaded
    spec.loader.exec_module(loaded)
    factory = getattr(loaded, function, None)
    if not callable(factory):
        raise BadArguments(f"--module {place}: {path} has no function {function}")
    return factory


def random_rows(name, kind, sizes, rows, ranges):
    shape = [rows, *sizes]
    if kind.is_floating_point:
        low, high = ranges.get(name, (0, 1))
        return (torch.rand(shape) * (high - low) + low).to(kind)
    low, high = ranges.get(name, (0, 1 if kind == torch.bool else 9))
    return torch.randint(int(low), int(high) + 1, shape).to(kind)


class Inputs:
    """The inputs of the module: described on the command line, or by the examples of its function."""

    def __init__(self, options, examples):
        ranges = dict(parse_range(text) for text in options.range)
        if options.input:
            self.tensors = [parse_input(text) for text in options.input]
            self.rows = lambda count: [random_rows(*tensor, count, ranges) for tensor in self.tensors]
        elif examples:
            tensors = [examples] if isinstance(examples, torch.Tensor) else list(examples)
            if any(not isinstance(one, torch.Tensor) or one.dim() == 0 or one.shape[0] != tensors[0].shape[0] or not len(one)
                   for one in tensors):
                raise Failed("the example inputs have to be tensors with the same number of rows")
            self.tensors = [(f"input{at}", one.dtype, list(one.shape[1:])) for at, one in enumerate(tensors)]
            self.rows = lambda count: [one[[row % len(one) for row in range(count)]] for one in tensors]
        else:
            raise BadArguments("--input is missing, and the function returns no example inputs; describe each input of forward()")
        unknown = set(ranges) - {name for name, _, _ in self.tensors}
        if unknown:
            raise BadArguments(f"--range: there is no input {', '.join(sorted(unknown))}")


def outputs_of(result):
    tensors = [result] if isinstance(result, torch.Tensor) else result
    if not isinstance(tensors, (tuple, list)) or not all(isinstance(one, torch.Tensor) for one in tensors):
        raise Failed(f"the module returns {type(result).__name__}; it has to return a tensor, or a tuple or list of tensors")
    return list(tensors)


# ---- the file

def export_torchscript(module, inputs, path):
    torch.jit.save(torch.jit.trace(module, tuple(inputs), check_trace=False), path)
    return torch.jit.load(path, map_location=inputs[0].device)


def export_package(module, inputs, path, max_batch):
    batch = torch.export.Dim("batch", min=1, max=max(2, max_batch))
    program = torch.export.export(module, tuple(inputs), dynamic_shapes=tuple({0: batch} for _ in inputs))
    # The process that serves it decides about its threads.
    torch._inductor.aoti_compile_and_package(program, package_path=path, inductor_configs={"cpp.dynamic_threads": True})
    return torch._inductor.aoti_load_package(path)


def version():
    return tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])


def make_file(options, module, inputs):
    if options.format == "torchscript":
        return export_torchscript(module, inputs, options.out)
    if version() < FIRST_WITH_PACKAGES:
        raise Failed(f"PyTorch {torch.__version__} makes no .pt2 packages: use 2.6 or later, or --format torchscript")
    if not options.out.endswith(".pt2"):
        raise BadArguments(f"--out {options.out}: the name of a package has to end in .pt2")
    return export_package(module, inputs, options.out, options.max_batch)


def difference(expected, found):
    """The largest one, as a fraction of the largest magnitude of its output."""
    if len(expected) != len(found):
        raise Failed(f"the file has {len(found)} outputs, the module {len(expected)}")
    worst = 0.0
    for one, other in zip(expected, found):
        if one.shape != other.shape or one.dtype != other.dtype:
            raise Failed(f"an output of the file is {NAMES.get(other.dtype, other.dtype)} {list(other.shape)}, "
                         f"of the module {NAMES.get(one.dtype, one.dtype)} {list(one.shape)}")
        if not one.numel():
            continue
        off = (one.double() - other.double()).abs().max()
        worst = max(worst, float(off / max(float(one.double().abs().max()), 1e-12)) if off else 0.0)
    return worst


# Two batches that differ from the exported one, as far as the largest allows.
def check_file(options, module, loaded, inputs):
    worst = 0.0
    for count in sorted({1, min(5, options.max_batch), options.max_batch}):
        rows = [one.to(options.device) for one in inputs.rows(count)]
        expected = outputs_of(module(*rows))
        found = outputs_of(loaded(*rows))
        if any(one.dim() == 0 or one.shape[0] != count for one in expected):
            raise Failed(f"for a batch of {count}, an output of the module has another first dimension")
        worst = max(worst, difference(expected, found))
    if not worst <= options.tolerance:
        raise Failed(f"the outputs of the file differ from the module's by {worst:.2g} of their largest magnitude; "
                     f"--tolerance is {options.tolerance}")
    return worst


def entry_of(options, inputs, outputs):
    if options.output and len(options.output) != len(outputs):
        raise BadArguments(f"--output: {len(options.output)} names for {len(outputs)} outputs")
    names = options.output or [f"output{at}" for at in range(len(outputs))]
    tensors = [(name, one.dtype, list(one.shape[1:])) for name, one in zip(names, outputs)]
    describe = lambda name, kind, sizes: {"name": name, "type": NAMES[kind], "shape": sizes}
    unknown = [kind for _, kind, _ in inputs.tensors + tensors if kind not in NAMES]
    if unknown:
        raise Failed(f"a tensor has the type {unknown[0]}, which is not served")
    name = options.name or os.path.splitext(os.path.basename(options.out))[0]
    entry = {"name": name, "file": os.path.basename(options.out),
             "inputs": [describe(*one) for one in inputs.tensors], "outputs": [describe(*one) for one in tensors],
             "slo_ms": options.slo_ms, "rate": 1, "max_batch": options.max_batch}
    for text in options.range:
        given, (low, high) = parse_range(text)
        for one in entry["inputs"]:
            if one["name"] == given:
                one["range"] = [low, high]
    return entry


def export(options):
    made = load_factory(options.module)()
    module, examples = made if isinstance(made, tuple) else (made, None)
    if not isinstance(module, torch.nn.Module):
        raise Failed(f"--module {options.module} returns {type(module).__name__} and no torch.nn.Module")
    inputs = Inputs(options, examples)
    module = module.to(options.device).eval()
    with torch.no_grad():
        # Exporters may keep a dimension of 1.
        rows = [one.to(options.device) for one in inputs.rows(3 if options.max_batch > 1 else 1)]
        outputs = outputs_of(module(*rows))
        entry = entry_of(options, inputs, outputs)
        loaded = make_file(options, module, rows)
        worst = check_file(options, module, loaded, inputs)
    with open(options.out + ".json", "w", encoding="utf-8") as file:
        json.dump({"models": [entry]}, file, indent=1)
        file.write("\n")
    print(f"{options.out}: differs from the module by {worst:.2g} of the largest magnitude; made for {options.device}\n"
          f"{options.out}.json: its entry; adapt slo_ms, rate and max_batch, then: gpulet serve {options.out}.json"
          + (" --native-models" if options.format == "pt2" else ""))


def main(argv):
    try:
        export(arguments_of(argv))
    except BadArguments as error:
        print(f"gpulet export: {error}", file=sys.stderr)
        return 2
    except Failed as error:
        print(f"gpulet export: {error}", file=sys.stderr)
        return 1
    except Exception as error:  # of PyTorch or of the module
        print(f"gpulet export: {type(error).__name__}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
