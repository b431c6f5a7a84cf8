#!/usr/bin/env python3
"""`gpulet export` with a PyTorch that makes TorchScript, and packages where it can: the file, its entry, wrong arguments.

    tests/tools/export_module_test.py

Needs a Python with torch; exits 77 without it. Otherwise as unittest.
"""
import contextlib
import importlib.util
import io
import json
import pathlib
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "export_module.py"
try:
    import torch
except ImportError:
    sys.exit(77)

NETWORKS = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 2)

    def forward(self, x, ids):
        return self.layer(x), ids + 1

class OneBatch(torch.nn.Module):
    def forward(self, x):
        return x.reshape([int(x.shape[0]), 4]) if x.shape[0] == 3 else x + 1

class Summed(torch.nn.Module):
    def forward(self, x):
        return x.sum(0)

class Named(torch.nn.Module):
    def forward(self, x):
        return {"y": x}

def net(): return Net()
def examples(): return Net(), (torch.rand(2, 4), torch.tensor([[7], [8]]))
def one_batch(): return OneBatch()
def summed(): return Summed()
def named(): return Named()
def number(): return 7
def fails(): raise ValueError("the weights are gone")
"""


def load_script():
    spec = importlib.util.spec_from_file_location("export_module", SCRIPT)
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    return script


class Export(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.networks = self.folder / "networks.py"
        self.networks.write_text(NETWORKS)
        self.out = self.folder / "net.pt"
        self.script = load_script()

    def run_it(self, function, *arguments, format="torchscript"):
        errors = io.StringIO()
        with contextlib.redirect_stderr(errors), contextlib.redirect_stdout(io.StringIO()):
            try:
                code = self.script.main(["--module", f"{self.networks}:{function}", "--format", format, "--device", "cpu",
                                         *arguments, *(() if "--out" in arguments else ("--out", str(self.out)))])
            except SystemExit as left:
                code = left.code
        return code, errors.getvalue()

    def entry(self):
        return json.loads(pathlib.Path(str(self.out) + ".json").read_text())["models"][0]

    def test_describes_the_tensors(self):
        code, errors = self.run_it("net", "--input", "x:FP32:4", "--input", "ids:INT64:1", "--output", "y", "--output", "next",
                                   "--range", "ids:3,5", "--max-batch", "6", "--slo-ms", "40", "--name", "mine")
        self.assertEqual(code, 0, errors)
        self.assertEqual(self.entry(), {
            "name": "mine", "file": "net.pt", "slo_ms": 40, "rate": 1, "max_batch": 6,
            "inputs": [{"name": "x", "type": "FP32", "shape": [4]}, {"name": "ids", "type": "INT64", "shape": [1], "range": [3, 5]}],
            "outputs": [{"name": "y", "type": "FP32", "shape": [2]}, {"name": "next", "type": "INT64", "shape": [1]}]})

    def test_the_file_takes_every_batch(self):
        self.assertEqual(self.run_it("net", "--input", "x:FP32:4", "--input", "ids:INT64:1")[0], 0)
        loaded = torch.jit.load(str(self.out))
        for count in (1, 2, 9):
            y, ids = loaded(torch.rand(count, 4), torch.zeros(count, 1, dtype=torch.int64))
            self.assertEqual((list(y.shape), list(ids.shape)), ([count, 2], [count, 1]))

    def test_takes_the_examples_of_the_function(self):
        self.assertEqual(self.run_it("examples")[0], 0)
        self.assertEqual([(one["name"], one["type"], one["shape"]) for one in self.entry()["inputs"]],
                         [("input0", "FP32", [4]), ("input1", "INT64", [1])])
        self.assertEqual([one["name"] for one in self.entry()["outputs"]], ["output0", "output1"])

    def test_refuses_a_file_that_differs_from_the_module(self):
        code, errors = self.run_it("one_batch", "--input", "x:FP32:4")
        self.assertEqual(code, 1, errors)
        self.assertFalse(pathlib.Path(str(self.out) + ".json").exists())

    def test_refuses_modules_that_cannot_be_served(self):
        for function, said in (("summed", "first dimension"), ("named", "tuple"), ("number", "torch.nn.Module"),
                               ("fails", "the weights are gone")):
            code, errors = self.run_it(function, "--input", "x:FP32:4")
            self.assertEqual(code, 1, errors)
            self.assertIn(said, errors)

    def test_refuses_wrong_arguments(self):
        given = ["--input", "x:FP32:4"]
        for function, arguments, said in (
                ("net", [], "--input"), ("nothing", given, "nothing"), ("net", ["--input", "x:F32:4"], "x:F32:4"),
                ("net", ["--input", "x:FP32:0"], "x:FP32:0"), ("net", [*given, "--range", "y:0,1"], "y"),
                ("net", [*given, "--range", "x:1"], "x:1"), ("net", [*given, "--max-batch", "0"], "--max-batch"),
                ("net", [*given, "--format", "onnx"], "onnx"), ("net", [*given, "--device", "tpu"], "tpu"),
                ("net", [*given, "--input", "ids:INT64:1", "--output", "y"], "--output")):
            code, errors = self.run_it(function, *arguments)
            self.assertEqual(code, 2, (arguments, errors))
            self.assertIn(said, errors)
        with contextlib.redirect_stderr(io.StringIO()):
            self.assertEqual(self.script.main(["--module", "nowhere.py:net", *given, "--out", str(self.out)]), 2)

    def test_packages_need_a_later_pytorch(self):
        package = self.folder / "net.pt2"
        code, errors = self.run_it("net", "--input", "x:FP32:4", "--input", "ids:INT64:1", "--out", str(package), format="pt2")
        if self.script.version() < self.script.FIRST_WITH_PACKAGES:
            self.assertEqual(code, 1)
            self.assertIn("2.6", errors)
        else:
            self.assertEqual(code, 0, errors)
            self.assertTrue(package.exists())


if __name__ == "__main__":
    unittest.main()
