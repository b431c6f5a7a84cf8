#!/usr/bin/env python3
"""Runs the Python examples of Triton's clients with `gpulet serve` of Triton's example repository.

  scripts/check_triton_examples.py SERVER CLIENT COMMON [--bin DIR]     print a line for each example, exit 1 if one fails
  scripts/check_triton_examples.py --self-test

SERVER, CLIENT and COMMON are checkouts of triton-inference-server/server, client and common: docs/examples/model_repository, the examples
with their library, and the protocol's definitions. Where the repository leaves a file to be downloaded, a small model with the tensors that
clients send stands in for it, and "reshape" is taken out of its configuration, because gpulet refuses that. Examples of what gpulet does not have are listed with the reason (OTHERS below).

Needs a Python with grpcio, protobuf, python-rapidjson, geventhttpclient, aiohttp, numpy and Pillow (Debian: python3-grpcio,
python3-protobuf, python3-rapidjson, python3-geventhttpclient, python3-aiohttp, python3-numpy, python3-pil), and protoc with
grpc_python_plugin (scripts/setup). Exits 77 without them.
"""
import argparse
import array
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from serving import Refused, Served

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "tools"))
from serve_program_test import FLOAT, content, number  # noqa: E402
SKIPPED = 77
EXAMPLE_ENDS_WITHIN_S = 120
PACKAGES = {"grpc": "grpcio", "google.protobuf": "protobuf", "rapidjson": "python-rapidjson", "geventhttpclient": "geventhttpclient",
            "aiohttp": "aiohttp", "numpy": "numpy", "PIL": "Pillow"}
IMAGE = "qa/images/mug.jpg"
COMPRESSED = ["--request-compression-algorithm", "gzip", "--response-compression-algorithm", "gzip"]
CLASSIFY = ["-m", "densenet_onnx", "-s", "INCEPTION", "-c", "3", "{image}"]
CLASSIFY_NHWC = ["-m", "inception_onnx", *CLASSIFY[2:]]

# In place of the package of that name, which is not kept any more: dictionaries whose values are attributes.
ATTRDICT = '''
class AttrDict(dict):
    def __getattr__(self, name):
        def wrapped(value):
            if isinstance(value, dict):
                return AttrDict(value)
            return [wrapped(each) for each in value] if isinstance(value, list) else value
        return wrapped(self[name])
'''
HTTP, GRPC = ["-u", "{http}"], ["-u", "{grpc}"]
# The arguments of each run of an example. {http} and {grpc} are addresses, {image} is a photo.
EXAMPLES = {
    "grpc_client": [GRPC],
    "grpc_explicit_byte_content_client": [GRPC],
    "grpc_explicit_int8_content_client": [GRPC],
    "grpc_explicit_int_content_client": [GRPC],
    "grpc_image_client": [[*GRPC, *CLASSIFY], [*GRPC, "--streaming", *CLASSIFY]],
    "image_client": [[*HTTP, *CLASSIFY], [*HTTP, *CLASSIFY_NHWC], [*HTTP, "-a", *CLASSIFY], [*GRPC, "-i", "grpc", *CLASSIFY],
                     [*GRPC, "-i", "grpc", "--streaming", *CLASSIFY]],
    "reuse_infer_objects_client": [[*HTTP, "-i", "http"], [*GRPC, "-i", "grpc"]],
    "simple_grpc_aio_infer_client": [GRPC],
    "simple_grpc_async_infer_client": [GRPC],
    "simple_grpc_custom_args_client": [GRPC],
    "simple_grpc_infer_client": [GRPC, [*GRPC, "-C", "gzip"]],
    "simple_grpc_keepalive_client": [GRPC],
    "simple_grpc_shm_client": [GRPC],
    "simple_grpc_shm_string_client": [GRPC],
    "simple_http_aio_infer_client": [HTTP],
    "simple_http_async_infer_client": [HTTP],
    "simple_http_infer_client": [HTTP, [*HTTP, *COMPRESSED]],
    "simple_http_shm_client": [HTTP],
    "simple_http_shm_string_client": [HTTP],
}
SEQUENCES = "models that keep a state from request to request are not served"
CUDA_MEMORY = "CUDA shared memory is not supported (docs/protocol.md)"
CONTROL = "counts the models of another repository, and loads with another configuration in the call"
OWN_NAME = "wants the server's name to be \"triton\""
PYTHON_MODEL = "also calls simple_identity, a Python model"
# Examples that do not apply, and why.
OTHERS = {
    "ensemble_image_client": "its model is not in this repository, and needs a backend of C++ code",
    "memory_growth_test": "its model, custom_identity_int32, is a backend of C++ code",
    "simple_grpc_aio_sequence_stream_infer_client": SEQUENCES,
    "simple_grpc_cudashm_client": CUDA_MEMORY,
    "simple_grpc_custom_repeat": "its model, repeat_int32, is a backend of C++ code that answers a request several times",
    "simple_grpc_health_metadata": OWN_NAME,
    "simple_grpc_model_control": CONTROL,
    "simple_grpc_sequence_stream_infer_client": SEQUENCES,
    "simple_grpc_sequence_sync_infer_client": SEQUENCES,
    "simple_grpc_string_infer_client": PYTHON_MODEL,
    "simple_http_cudashm_client": CUDA_MEMORY,
    "simple_http_health_metadata": OWN_NAME,
    "simple_http_model_control": CONTROL,
    "simple_http_sequence_sync_infer_client": SEQUENCES,
    "simple_http_string_infer_client": PYTHON_MODEL,
}
# The models that must be served. The others are listed with the program's reason.
MODELS = ("densenet_onnx", "inception_onnx", "simple", "simple_int8", "simple_string")


# ---- stand-ins

def tensor(name, shape):
    dimensions = b"".join(content(1, number(1, size)) for size in shape)
    return content(1, name) + content(2, content(1, number(1, FLOAT) + content(2, dimensions)))


def weights(name, shape):
    """Numbers that differ, so that the classes are in an order."""
    count = 1
    for size in shape:
        count *= size
    numbers = array.array("f", ((i * 7919 % 1000) / 1000 for i in range(count)))
    return b"".join(number(1, size) for size in shape) + number(2, FLOAT) + content(8, name) + content(9, numbers.tobytes())


def node(operation, inputs, output):
    return b"".join(content(1, one) for one in inputs) + content(2, output) + content(4, operation)


def network(image, image_shape, axes, result, classes):
    """Classes by the mean of each channel."""
    mean_of = content(1, "axes") + b"".join(number(8, axis) for axis in axes) + number(20, 7)
    keep_none = content(1, "keepdims") + number(3, 0) + number(20, 2)
    nodes = [node("ReduceMean", [image], "means") + content(5, mean_of) + content(5, keep_none),
             node("MatMul", ["means", "w"], "sums"), node("Softmax", ["sums"], result)]
    graph = b"".join(content(1, one) for one in nodes) + content(2, "stand-in") + content(5, weights("w", [3, classes]))
    graph += content(11, tensor(image, image_shape)) + content(12, tensor(result, [classes]))
    return number(1, 7) + content(7, graph) + content(8, number(2, 13))


def stand_ins():
    """Networks in place of files to be downloaded, with the tensors that clients send and receive."""
    return {"densenet_onnx": network("data_0", [3, 224, 224], (1, 2), "fc6_1", 1000),
            "inception_onnx": network("input:0", [299, 299, 3], (0, 1), "InceptionV3/Predictions/Softmax:0", 1001)}


# ---- the pieces

def without_reshape(config):
    """The configuration of a stand-in, which takes the tensors as clients send them."""
    return re.sub(r"\breshape\s*:?\s*\{[^}]*\}", "", config)


def make_repository(server, folder):
    shutil.copytree(server / "docs" / "examples" / "model_repository", folder)
    for name, file in stand_ins().items():
        config = folder / name / "config.pbtxt"
        config.write_text(without_reshape(config.read_text(encoding="utf-8")), encoding="utf-8")
        (folder / name / "1").mkdir(exist_ok=True)
        (folder / name / "1" / "model.onnx").write_bytes(file)


def make_library(client, common, folder):
    """The clients' library as its wheel has it, with generated modules, and what examples need beside it."""
    shutil.copytree(client / "src" / "python" / "library", folder)
    (folder / "attrdict.py").write_text(ATTRDICT, encoding="utf-8")
    plugin = shutil.which("grpc_python_plugin")
    with tempfile.TemporaryDirectory() as work:
        subprocess.run(["protoc", "-I", common / "protobuf", f"--python_out={work}", f"--grpc_out={work}",
                        f"--plugin=protoc-gen-grpc={plugin}", "grpc_service.proto", "model_config.proto"], check=True)
        for made in Path(work).glob("*.py"):
            text = re.sub(r"^import (?:grpc_)?(\w+)_pb2 as", r"from tritonclient.grpc import \1_pb2 as", made.read_text(encoding="utf-8"),
                          flags=re.M)
            (folder / "tritonclient" / "grpc" / made.name.removeprefix("grpc_")).write_text(text, encoding="utf-8")


def run_example(file, arguments, library):
    """What was wrong; empty: nothing."""
    paths = [str(library), *filter(None, [os.environ.get("PYTHONPATH")])]
    try:
        done = subprocess.run([sys.executable, file, *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, check=False, timeout=EXAMPLE_ENDS_WITHIN_S,
                              env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYTHONWARNINGS": "ignore"})
    except subprocess.TimeoutExpired:
        return f"not over within {EXAMPLE_ENDS_WITHIN_S} s"
    if done.returncode != 0:
        return f"exit {done.returncode}: {done.stdout[-1000:].strip()}"
    if "FAIL" in done.stdout:
        return done.stdout[-1000:].strip()
    return ""


def unknown(names):
    """Examples that are in neither table, or are in one and do not exist."""
    return sorted(set(names) ^ (set(EXAMPLES) | set(OTHERS)))


def check(options, folder):
    examples = {file.stem: file for file in sorted((options.client / "src" / "python" / "examples").glob("*.py"))}
    library, repository = folder / "library", folder / "repository"
    make_library(options.client, options.common, library)
    make_repository(options.server, repository)
    failures = [f"{name}: unknown example, or one that is missing; see EXAMPLES and OTHERS" for name in unknown(examples)]
    passed, others = 0, []
    with Served(options.bin, folder, repository, "--shared-memory", "--measure-seconds", "5", "--cache", folder / "cache") as served:
        left_out = served.left_out()
        print(f"served: {', '.join(served.models())}; stand-ins, without \"reshape\": {', '.join(stand_ins())}")
        for name, reason in sorted(left_out.items()):
            print(f"not served: {name}: {reason}")
        failures += [f"{name} is not served: {left_out.get(name, 'it is missing')}" for name in MODELS if name not in served.models()]
        places = {"http": served.http, "grpc": served.grpc, "image": str(options.server / IMAGE)}
        for name, file in examples.items():
            if name in OTHERS:
                others.append(f"does not apply: {name}: {OTHERS[name]}")
                continue
            for arguments in EXAMPLES.get(name, []):
                line = " ".join([name, *(one for one in arguments if one != "-u" and not one.startswith("{"))])
                wrong = run_example(file, [one.format(**places) for one in arguments], library)
                print(f"{'FAILED' if wrong else 'passed'}: {line}{': ' if wrong else ''}{wrong}", flush=True)
                failures += [f"{line}: failed"] if wrong else []
                passed += not wrong
    print("\n".join([*others, *failures, f"check_triton_examples: {passed} runs passed, {len(failures)} failures, {len(others)} examples "
                                         "that do not apply"]))
    return 1 if failures else 0


class SelfTest(unittest.TestCase):
    def test_every_example_is_in_one_table(self):
        self.assertFalse(set(EXAMPLES) & set(OTHERS))
        self.assertEqual(unknown([*EXAMPLES, *OTHERS]), [])
        self.assertEqual(unknown([*EXAMPLES, *OTHERS, "new"]), ["new"])

    def test_reshape_is_taken_out(self):
        config = "dims: [ 3, 4 ]\n    reshape { shape: [ 1, 3 ] }\n  }"
        self.assertEqual(without_reshape(config).split(), "dims: [ 3, 4 ] }".split())

    def test_an_example_that_fails_is_found(self):
        with tempfile.TemporaryDirectory() as folder:
            for text, right in (("print('PASS')", True), ("raise SystemExit(1)", False), ("print('FAIL')", False)):
                file = Path(folder) / "example.py"
                file.write_text(text, encoding="utf-8")
                self.assertEqual(run_example(file, [], folder) == "", right)


def missing():
    tools = [name for name in ("protoc", "grpc_python_plugin") if shutil.which(name) is None]

    def has(module):
        try:
            return importlib.util.find_spec(module) is not None
        except ModuleNotFoundError:
            return False
    return tools + [package for module, package in PACKAGES.items() if not has(module)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("server", "client", "common"):
        parser.add_argument(name, type=lambda text: Path(text).resolve(), nargs="?")
    parser.add_argument("--bin", type=Path, default=ROOT / "build" / "release" / "bin")
    parser.add_argument("--self-test", action="store_true")
    options = parser.parse_args()
    if options.self_test:
        suite = unittest.defaultTestLoader.loadTestsFromTestCase(SelfTest)
        return 0 if unittest.TextTestRunner().run(suite).wasSuccessful() else 1
    if options.common is None:
        parser.error("SERVER, CLIENT and COMMON are required")
    if absent := missing():
        print(f"check_triton_examples: skipped: {sys.executable} or this machine lacks {', '.join(absent)}")
        return SKIPPED
    options.bin = options.bin.resolve()
    with tempfile.TemporaryDirectory(prefix="gpulet-triton-") as folder:
        try:
            return check(options, Path(folder))
        except Refused as reason:
            print(f"check_triton_examples: FAILED: {reason}")
            return 1


if __name__ == "__main__":
    sys.exit(main())
