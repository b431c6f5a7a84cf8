#!/usr/bin/python3
"""Writes the example models as TorchScript and as ONNX: models/<name>.pt and models/<name>.onnx.

Needs a Python with torch: Debian's python3-torch (hence the interpreter's full path), or run this with another Python.
Without torchvision, only the networks in example_models/ are exported. LeNet is trained on the digits in models/; the
other networks have seeded random weights, or torchvision's trained weights with --pretrained.
A network that this torch cannot export to ONNX is named and left out.
Exits 0 if every other requested file exists, 1 if one failed, 2 on bad arguments.
"""

import argparse
import concurrent.futures
import dataclasses
import hashlib
import multiprocessing
import os
import sys
import time
import warnings

SCRIPTS = os.path.dirname(os.path.abspath(__file__))
MODELS = os.path.join(os.path.dirname(SCRIPTS), "models")
GENERATED = os.path.join(MODELS, "generated")

try:
    import torch
except ImportError as error:
    sys.exit(f"{error}: run this with a Python that has torch (Debian: /usr/bin/python3, package python3-torch)")
try:
    import torchvision
except (ImportError, RuntimeError, OSError):  # missing, or built for another torch
    torchvision = None

from example_models import classifiers, digits, networks


@dataclasses.dataclass(frozen=True)
class Example:
    name: str
    outputs: tuple  # shapes of one request's outputs
    image: tuple = (3, 224, 224)  # shape of the FP32 input; None: token ids
    names: tuple = ("logits",)  # of the outputs

    @property
    def input_name(self):
        return "tokens" if self.image is None else "image"


CLASSES = ((1000,),)
# Largest first, for short tails of parallel exports.
EXAMPLES = (
    Example("vgg19", CLASSES),
    Example("vgg16", CLASSES),
    Example("bert", ((networks.Bert.WIDTH,),), image=None, names=("pooled",)),
    Example("densenet161", CLASSES),
    Example("alexnet", CLASSES),
    Example("resnet50", CLASSES),
    Example("googlenet", CLASSES),
    Example("efficientnet_b0", CLASSES),
    Example("ssd_mobilenet_v1", ((1917, 4), (1917, 91)), image=(3, 300, 300), names=("boxes", "scores")),
    Example("resnet18", CLASSES),
    Example("mobilenet_v2", CLASSES),
    Example("mnasnet", CLASSES),
    Example("lenet", ((10,),), image=(1, 28, 28)),
)
OWN_NETWORKS = {"ssd_mobilenet_v1": networks.SsdMobileNetV1, "bert": networks.Bert}
# What there is without torchvision.
OWN = {"lenet", *OWN_NETWORKS, *classifiers.MAKERS}
TORCHVISION_NAMES = {"mnasnet": "mnasnet1_0"}


def sample(example, count):
    if example.image is None:
        return torch.randint(0, networks.Bert.VOCABULARY, (count, networks.Bert.TOKENS))
    # Smooth shapes under noise: images of noise alone all look the same to the deep layers.
    shapes = torch.nn.functional.interpolate(torch.randn(count, example.image[0], 4, 4), example.image[1:], mode="bilinear")
    return shapes + 0.3 * torch.randn(count, *example.image)


def calibrate(net, batch):
    """Scales random weights so that every layer's output has unit variance for that batch.

    Left as they are made, some of these deep networks answer with the same numbers whatever they are asked, others
    overflow. One forward pass: each layer is scaled when its input has its final scale, and batch normalisation
    takes its statistics from what it sees. Its output is shifted by one: where the ReLU behind cuts off half of it,
    rounding errors grow by a fifth with every layer, and after SSD's 35 they have reached 1e-4 of the answer.
    """

    def scale(layer, _, output):
        deviation = output.std().clamp_min(1e-6)
        layer.weight /= deviation
        if layer.bias is not None:
            layer.bias /= deviation
        return output / deviation

    hooks = []
    for layer in net.modules():
        if isinstance(layer, (torch.nn.Conv2d, torch.nn.Linear)):
            hooks.append(layer.register_forward_hook(scale))
        elif isinstance(layer, torch.nn.BatchNorm2d):
            layer.reset_running_stats()
            layer.momentum = None  # the plain average of all batches seen: this one
            layer.bias.fill_(1)
            layer.train()
    net(batch)
    for hook in hooks:
        hook.remove()
    net.eval()


def build(example, pretrained):
    """The network and a word about its weights."""
    if example.name == "lenet":
        net, accuracy = digits.train_lenet(MODELS)
        return net, f"trained, accuracy {accuracy:.3f} on {digits.HELD_OUT} held-out digits"
    if example.name in OWN_NETWORKS:
        net = OWN_NETWORKS[example.name]()
    elif torchvision is None:
        net = classifiers.MAKERS[example.name]()
    else:
        make = getattr(torchvision.models, TORCHVISION_NAMES.get(example.name, example.name))
        if pretrained:
            return make(weights="DEFAULT"), "torchvision's weights"
        options = {"aux_logits": False, "init_weights": False} if example.name == "googlenet" else {}
        net = make(weights=None, **options)
    net.eval()
    calibrate(net, sample(example, 16))
    return net, "random weights"


def verify(example, module):
    """The contract of an exported file: declared shapes, any batch size, rows that know nothing of one another."""
    batch = sample(example, 3)

    def run(part):
        outputs = module(part)
        return outputs if isinstance(outputs, tuple) else (outputs,)

    together = run(batch)
    shapes = tuple(tuple(output.shape[1:]) for output in together)
    if shapes != example.outputs:
        raise RuntimeError(f"{example.name}: outputs are {shapes}, declared are {example.outputs}")
    for row in range(len(batch)):
        for all_rows, alone in zip(together, run(batch[row:row + 1])):
            largest = all_rows.abs().max()
            if not torch.isfinite(all_rows).all() or (all_rows[row] - alone[0]).abs().max() > 1e-4 * largest:
                raise RuntimeError(f"{example.name}: row {row} of a batch of {len(batch)} differs from the same row alone")
            if (all_rows[row] - all_rows[row - 1]).abs().max() < 1e-3 * largest:
                raise RuntimeError(f"{example.name}: two different inputs have the same output")


def export_torchscript(example, net, partial):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", torch.jit.TracerWarning)
        module = torch.jit.trace(net, sample(example, 2), check_trace=False)
    verify(example, module)
    module.save(partial)


def export_onnx(example, net, partial):
    """The tests of the ONNX executor compare its answers with TorchScript's (ctest `models.`)."""
    tensors = [example.input_name, *example.names]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(net, sample(example, 2), partial, opset_version=14, input_names=tensors[:1],
                          output_names=tensors[1:], dynamic_axes={tensor: {0: "batch"} for tensor in tensors})


# By the ending of the file.
FORMATS = {"pt": export_torchscript, "onnx": export_onnx}


def export(name, formats, pretrained, stamp):
    """Runs in a process of its own. Returns a line for the progress."""
    started = time.monotonic()
    torch.set_num_threads(1)
    example = next(each for each in EXAMPLES if each.name == name)
    torch.manual_seed(int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "little"))
    torch.set_grad_enabled(name == "lenet")
    net, weights = build(example, pretrained)
    torch.set_grad_enabled(False)
    net.eval()
    megabytes, missing = 0, ""
    for ending in formats:
        target, partial = os.path.join(MODELS, f"{name}.{ending}"), os.path.join(GENERATED, f"{name}.{ending}.partial")
        try:
            FORMATS[ending](example, net, partial)
        except Exception as error:  # torch.onnx raises many kinds
            if ending != "onnx":
                raise
            missing = f"; not as ONNX: {(str(error) or repr(error)).splitlines()[0]}"
            continue
        megabytes += os.path.getsize(partial) / 1e6
        os.replace(partial, target)
        with open(stamp_file(name, ending), "w", encoding="ascii") as file:
            file.write(stamp + "\n")
    return f"{megabytes:6.1f} MB {time.monotonic() - started:6.1f} s  {weights}{missing}"


def stamp_file(name, ending):
    return os.path.join(GENERATED, f"{name}.{ending}.stamp")


def make_stamp(pretrained):
    """Changes with whatever the exported files depend on."""
    digest = hashlib.sha256(f"{torch.__version__} {torchvision and torchvision.__version__} {pretrained}".encode())
    sources = [os.path.abspath(__file__), classifiers.__file__, digits.__file__, networks.__file__, os.path.join(MODELS, "digits.csv.gz")]
    for source in sources:
        with open(source, "rb") as file:
            digest.update(file.read())
    return digest.hexdigest()


def up_to_date(name, ending, stamp):
    needed = [os.path.join(MODELS, f"{name}.{ending}"), stamp_file(name, ending)]
    if name == "lenet":
        needed += [os.path.join(GENERATED, "digits.f32"), os.path.join(GENERATED, "digits.labels")]
    if not all(os.path.exists(file) for file in needed):
        return False
    with open(stamp_file(name, ending), encoding="ascii") as file:
        return file.read().strip() == stamp


def parse_arguments():
    names = [example.name for example in EXAMPLES if torchvision or example.name in OWN]
    parser = argparse.ArgumentParser(description="Writes the example models to models/.")
    parser.add_argument("--only", metavar="A,B", help="these models only; all are: " + ", ".join(sorted(names)))
    parser.add_argument("--format", choices=["torchscript", "onnx", "both"], default="both", help="default: %(default)s")
    parser.add_argument("--pretrained", action="store_true", help="download torchvision's trained weights")
    parser.add_argument("--jobs", type=int, default=min(os.cpu_count() or 1, 4), help="processes (default: %(default)s)")
    parser.add_argument("--force", action="store_true", help="export what is up to date, too")
    arguments = parser.parse_args()
    if arguments.jobs < 1:
        parser.error(f"--jobs must be at least 1; was {arguments.jobs}")
    chosen = arguments.only.split(",") if arguments.only else names
    if arguments.pretrained and not torchvision:
        parser.error("--pretrained: this Python has no torchvision, whose weights they are")
    for name in chosen:
        if name not in names:
            parser.error(f"--only: no model '{name}'; there are {', '.join(sorted(names))}"
                         + ("" if torchvision else ", and others where torchvision is"))
    return arguments, [name for name in names if name in chosen]


def main():
    arguments, chosen = parse_arguments()
    os.makedirs(GENERATED, exist_ok=True)
    stamp = make_stamp(arguments.pretrained)
    endings = {"torchscript": ["pt"], "onnx": ["onnx"], "both": list(FORMATS)}[arguments.format]
    missing = {name: [ending for ending in endings if arguments.force or not up_to_date(name, ending, stamp)] for name in chosen}
    wanted = [name for name in chosen if missing[name]]
    if len(wanted) < len(chosen):
        print(f"{len(chosen) - len(wanted)} of {len(chosen)} models are up to date", flush=True)
    failed = 0
    # Processes started afresh: LibTorch's thread pools do not survive a fork.
    with concurrent.futures.ProcessPoolExecutor(arguments.jobs, multiprocessing.get_context("spawn")) as pool:
        running = {pool.submit(export, name, missing[name], arguments.pretrained, stamp): name for name in wanted}
        for number, future in enumerate(concurrent.futures.as_completed(running), 1):
            try:
                line = future.result()
            except Exception as error:  # whatever went wrong with one model, the others are still wanted
                failed += 1
                line = f"failed: {error}"
            print(f"[{number:2}/{len(wanted)}] {running[future]:17} {line}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
