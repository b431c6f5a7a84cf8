#!/usr/bin/env python3
"""Runs the Python examples of Triton's clients with `gpulet serve` of Triton's example repository.

  scripts/check_triton_examples.py SERVER CLIENT COMMON [--bin DIR]     print a line for each example, exit 1 if one fails
  scripts/check_triton_examples.py --self-test

SERVER, CLIENT and COMMON are checkouts of triton-inference-server/server, client and common: docs/examples/model_repository, the examples
with their library, and the protocol's definitions. Where the repository leaves a file to be downloaded, a small model with the same
tensors stands in for it. Examples of what gpulet does not have are listed with the reason (OTHERS below).

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

# Examples with the models that they use and, for each run, their further arguments. {http} and {grpc} are addresses, {image} is a photo.
EXAMPLES = {
    "grpc_client": (["densenet_onnx"], [["-u", "{grpc}"]]),
    "grpc_explicit_byte_content_client": (["simple_string"], [["-u", "{grpc}"]]),
    "grpc_explicit_int8_content_client": (["simple_int8"], [["-u", "{grpc}"]]),
    "grpc_explicit_int_content_client": (["simple"], [["-u", "{grpc}"]]),
    "grpc_image_client": (["densenet_onnx"], [["-u", "{grpc}", *CLASSIFY], ["-u", "{grpc}", "--streaming", *CLASSIFY]]),
    "image_client": (["densenet_onnx"], [["-u", "{http}", *CLASSIFY], ["-u", "{http}", "-a", *CLASSIFY],
                                         ["-u", "{grpc}", "-i", "grpc", *CLASSIFY],
                                         ["-u", "{grpc}", "-i", "grpc", "--streaming", *CLASSIFY]]),
    "reuse_infer_objects_client": (["simple"], [["-u", "{http}", "-i", "http"], ["-u", "{grpc}", "-i", "grpc"]]),
    "simple_grpc_aio_infer_client": (["simple"], [["-u", "{grpc}"]]),
    "simple_grpc_async_infer_client": (["simple"], [["-u", "{grpc}"]]),
    "simple_grpc_custom_args_client": (["simple"], [["-u", "{grpc}"]]),
    "simple_grpc_infer_client": (["simple"], [["-u", "{grpc}"], ["-u", "{grpc}", "-C", "gzip"]]),
    "simple_grpc_keepalive_client": (["simple"], [["-u", "{grpc}"]]),
    "simple_grpc_shm_client": (["simple"], [["-u", "{grpc}"]]),
    "simple_grpc_shm_string_client": (["simple_string"], [["-u", "{grpc}"]]),
    "simple_http_aio_infer_client": (["simple"], [["-u", "{http}"]]),
    "simple_http_async_infer_client": (["simple"], [["-u", "{http}"]]),
    "simple_http_infer_client": (["simple"], [["-u", "{http}"], ["-u", "{http}", *COMPRESSED]]),
    "simple_http_shm_client": (["simple"], [["-u", "{http}"]]),
    "simple_http_shm_string_client": (["simple_string"], [["-u", "{http}"]]),
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
# The models that must be served. Others are listed with the program's reason.
MODELS = ("simple", "simple_int8", "simple_string")


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


def network(image, image_shape, result, result_shape, nodes, weight_shape):
    graph = b"".join(content(1, one) for one in nodes) + content(2, "stand-in") + content(5, weights("w", weight_shape))
    graph += content(11, tensor(image, image_shape)) + content(12, tensor(result, result_shape))
    return number(1, 7) + content(7, graph) + content(8, number(2, 13))


def stand_ins():
    """The networks in place of files to be downloaded: the mean of each channel decides."""
    densenet = network("data_0", [1, 3, 224, 224], "fc6_1", [1, 1000, 1, 1],
                       [node("GlobalAveragePool", ["data_0"], "means"), node("Conv", ["means", "w"], "fc6_1")], [1000, 3, 1, 1])
    # The channels are the last dimension.
    inception = network("input:0", [1, 299, 299, 3], "InceptionV3/Predictions/Softmax:0", [1, 1001],
                        [node("MatMul", ["input:0", "w"], "classes"),
                         node("ReduceMean", ["classes"], "means") + content(5, axes(1, 2)) + content(5, keeps(0)),
                         node("Softmax", ["means"], "InceptionV3/Predictions/Softmax:0")], [3, 1001])
    return {"densenet_onnx": densenet, "inception_onnx": inception}


def axes(*numbers):
    return content(1, "axes") + b"".join(number(8, each) for each in numbers) + number(20, 7)


def keeps(dimensions):
    return content(1, "keepdims") + number(3, dimensions) + number(20, 2)


# ---- the pieces

def make_repository(server, folder):
    shutil.copytree(server / "docs" / "examples" / "model_repository", folder)
    for name, file in stand_ins().items():
        if (folder / name).is_dir():
            (folder / name / "1").mkdir(exist_ok=True)
            (folder / name / "1" / "model.onnx").write_bytes(file)


def make_library(client, common, folder):
    """The clients' library as its wheel has it, with generated modules."""
    shutil.copytree(client / "src" / "python" / "library", folder)
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


def why_not(name, left_out):
    """Why an example does not apply; empty: it does."""
    if name in OTHERS:
        return OTHERS[name]
    missing = [model for model in EXAMPLES[name][0] if model not in MODELS and model in left_out]
    return f"{missing[0]} is not served: {left_out[missing[0]]}" if missing else ""


def check(options, folder):
    examples = {file.stem: file for file in sorted((options.client / "src" / "python" / "examples").glob("*.py"))}
    library, repository = folder / "library", folder / "repository"
    make_library(options.client, options.common, library)
    make_repository(options.server, repository)
    failures, passed, others = [f"{name}: unknown example, or one that is missing; see EXAMPLES and OTHERS" for name in unknown(examples)], 0, []
    with Served(options.bin, folder, repository, "--shared-memory", "--measure-seconds", "5", "--cache", folder / "cache") as served:
        left_out = served.left_out()
        print(f"served: {', '.join(served.models())}")
        for name, reason in sorted(left_out.items()):
            print(f"not served: {name}: {reason}")
        failures += [f"{name} is not served: {left_out.get(name, 'it is missing')}" for name in MODELS if name not in served.models()]
        places = {"http": served.http, "grpc": served.grpc, "image": str(options.server / IMAGE)}
        for name, file in examples.items():
            if name in unknown(examples):
                continue
            if reason := why_not(name, left_out):
                others.append(f"does not apply: {name}: {reason}")
                continue
            for arguments in EXAMPLES[name][1]:
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

    def test_an_example_applies_where_its_models_must_be_served(self):
        self.assertEqual(why_not("simple_http_infer_client", {"simple": "broken"}), "")
        self.assertIn("reshape", why_not("grpc_client", {"densenet_onnx": "reshape"}))
        self.assertEqual(why_not("grpc_client", {}), "")
        self.assertTrue(why_not("memory_growth_test", {}))

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
