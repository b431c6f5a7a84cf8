#!/usr/bin/env python3
"""Runs the examples of the guides with the programs of a build, in an empty folder.

  scripts/check_examples.py --build DIR [--only commands|models|guide]     print every failure, exit 1 if any
  scripts/check_examples.py --self-test                              test how examples are read

- commands: the blocks of docs/guides/ that run `gpulet schedule` or `gpulet simulate`, in order. Such a command may exit
  with 1, which says that a plan does not cover the demand.
- models: the Python code of docs/model-files.md and docs/tutorial.md exports its models; entries of the models file in that page and in the
  guides pass `gpulet config check`. Needs a Python with torch and torchvision; exits 77 without one.
- guide: only if asked for, takes minutes. Runs the section "Serve by hand" of docs/guide.md word for word, with the example models of this
  checkout. The load must be served in time, and the status must have no grave problem. As root in a network of its own; otherwise on the
  ports of the guide, which must be free.
"""
import argparse
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import textwrap
import unittest
from pathlib import Path

from check_images import own_network

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "tools"))
from serve_program_test import content, number  # noqa: E402
GUIDE = "docs/guide.md"
MOST_VIOLATED = 0.05
MODEL_FILES = "docs/model-files.md"
TUTORIAL = "docs/tutorial.md"
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.S | re.M)
RUNS_PLANS = re.compile(r"^build/release/bin/gpulet (schedule|simulate) ", re.M)
# In place of the library: networks that take keywords, and return a dictionary of tensors or an object.
TRANSFORMERS = '''
import torch


class BertConfig:
    pass


class BertModel(torch.nn.Module):
    def __init__(self, config):
        super().__init__()
        self.embeddings = torch.nn.Embedding(1000, 768)
        self.pooler = torch.nn.Linear(768, 768)

    def forward(self, input_ids=None, attention_mask=None):
        hidden = self.embeddings(input_ids) * attention_mask[:, :, None]
        return {"last_hidden_state": hidden, "pooler_output": torch.tanh(self.pooler(hidden[:, 0]))}


class Answer:
    def __init__(self, logits):
        self.logits = logits


class AutoModelForSequenceClassification(torch.nn.Module):
    @staticmethod
    def from_pretrained(name):
        return AutoModelForSequenceClassification()

    def __init__(self):
        super().__init__()
        self.encoder = BertModel(BertConfig())
        self.head = torch.nn.Linear(768, 2)

    def forward(self, input_ids=None, attention_mask=None):
        return Answer(self.head(self.encoder(input_ids, attention_mask)["pooler_output"]))
'''


def blocks_of(text):
    """(language, code) of every fenced block at the left margin."""
    return BLOCK.findall(text)


def plan_blocks(text):
    return [code for language, code in blocks_of(text) if not language and RUNS_PLANS.search(code)]


def models_files(text):
    """Every JSON block that is a models file, or an entry of one, as a models file."""
    for language, code in blocks_of(text):
        if language == "json":
            document = json.loads(code)
            if "inputs" in document:
                yield {"models": [document]}
            elif isinstance(document.get("models"), list):
                yield document


def run(arguments, folder, allowed=(0,), **options):
    done = subprocess.run(arguments, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, **options)
    if done.returncode in allowed:
        return []
    return [f"exit code {done.returncode}: {' '.join(map(str, arguments))[:300]}\n{done.stdout[-2000:]}"]


def check_commands(build, folder):
    for name in ("config", "profiles"):
        (folder / name).symlink_to(ROOT / name)
    (folder / "build" / "release").mkdir(parents=True)
    (folder / "build" / "release" / "bin").symlink_to(build / "bin")
    count, failures = 0, []
    for guide in sorted((ROOT / "docs" / "guides").glob("*.md")):
        for code in plan_blocks(guide.read_text(encoding="utf-8")):
            count += 1
            failures += [f"{guide.name}: {failure}" for failure in run(["bash", "-ec", code], folder, (0, 1))]
    return count, failures if count else ["no guide runs a plan"]


def check_tutorial(folder):
    scripts = [code for language, code in blocks_of((ROOT / TUTORIAL).read_text(encoding="utf-8")) if language == "python"]
    failures = []
    for number, script in enumerate(scripts):
        (folder / f"tutorial-{number}.py").write_text(script, encoding="utf-8")
        failures += run([sys.executable, f"tutorial-{number}.py"], folder, env={**os.environ, "PYTHONPATH": str(folder)})
    failures += [f"{TUTORIAL}: exports no {name}" for name in ("resnet18.onnx", "sentiment.onnx", "resnet18.pt")
                 if not (folder / name).exists()]
    return len(scripts), failures


# TensorProto.DataType of ONNX.
ELEMENT_TYPES = {"FP32": 1, "UINT8": 2, "INT8": 3, "INT16": 5, "INT32": 6, "INT64": 7, "BYTES": 8, "BOOL": 9, "FP16": 10,
                 "FP64": 11, "BF16": 16}


def onnx_of(entry):
    """An ONNX file that has the tensors of the entry, and computes nothing."""
    def dimension(size):
        return content(1, content(2, "free") if size < 0 else number(1, size))

    batch = b"" if entry.get("max_batch") == 0 else content(1, content(2, "batch"))

    def tensor(spec):
        shape = batch + b"".join(map(dimension, spec["shape"]))
        kind = number(1, ELEMENT_TYPES[spec["type"]]) + content(2, shape)
        return content(1, spec["name"]) + content(2, content(1, kind))

    graph = content(2, "graph") + b"".join(content(11, tensor(spec)) for spec in entry["inputs"])
    graph += b"".join(content(12, tensor(spec)) for spec in entry["outputs"])
    return number(1, 7) + content(7, graph) + content(8, number(2, 13))


def write_stand_in(entry, exported, folder):
    """In place of a file of the reader's own."""
    file = folder / entry["file"]
    file.parent.mkdir(parents=True, exist_ok=True)
    if file.suffix == ".onnx":
        file.write_bytes(onnx_of(entry))
    else:
        file.symlink_to(exported)


def check_models(build, folder):
    page = (ROOT / MODEL_FILES).read_text(encoding="utf-8")
    (folder / "transformers.py").write_text(TRANSFORMERS, encoding="utf-8")
    script = "\n".join(code for language, code in blocks_of(page) if language == "python")
    (folder / "export.py").write_text(script, encoding="utf-8")
    failures = run([sys.executable, "export.py"], folder, env={**os.environ, "PYTHONPATH": str(folder)})
    if failures:
        return 1, failures
    count, failures = check_tutorial(folder)
    count += 1
    exported = folder / "resnet18.pt"
    for path in [MODEL_FILES, *sorted(str(guide) for guide in (ROOT / "docs" / "guides").glob("*.md"))]:
        for document in models_files((ROOT / path).read_text(encoding="utf-8")):
            count += 1
            for entry in document["models"]:
                if not (folder / entry["file"]).exists():
                    write_stand_in(entry, exported, folder)
            file = folder / f"models-{count}.json"
            file.write_text(json.dumps(document), encoding="utf-8")
            failures += [f"{path}: {failure}" for failure in run([build / "bin" / "gpulet", "config", "check", file], folder)]
    return count, failures


def listed_blocks(page, section):
    """The blocks of a section that are items of a list."""
    text = page.partition(f"## {section}\n")[2].partition("\n## ")[0]
    return [textwrap.dedent(code) for code in re.findall(r"^ {3}```\n(.*?)^ {3}```$", text, re.S | re.M)]


def load_failures(report):
    for model in report["models"]:
        bad = model["late"] + model["dropped"] + model["errors"]
        if not model["served"] or bad > MOST_VIOLATED * model["offered"]:
            yield f"{GUIDE}: of {model['offered']} requests to {model['name']}, {bad} had no answer in time"


def check_guide(build, folder):
    measure, check, start, use = listed_blocks((ROOT / GUIDE).read_text(encoding="utf-8"), "Serve by hand")
    if os.geteuid() == 0:
        own_network()
    shutil.copytree(ROOT / "config", folder / "config")
    (folder / "models").symlink_to(ROOT / "models")
    (folder / "build" / "release").mkdir(parents=True)
    (folder / "build" / "release" / "bin").symlink_to(build / "bin")
    failures = run(["bash", "-ec", measure], folder) + run(["bash", "-ec", check], folder)
    daemons = []
    try:
        for line in [] if failures else start.splitlines():
            with open(folder / f"daemon-{len(daemons)}.log", "w", encoding="utf-8") as log:
                daemons.append(subprocess.Popen(shlex.split(line), cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log))
        if not failures:
            commands = use.replace("gpulet load ", "gpulet load --report load.json ")
            failures = run(["bash", "-ec", commands], folder)
        if not failures:
            failures += load_failures(json.loads((folder / "load.json").read_text(encoding="utf-8")))
            status = subprocess.run([build / "bin" / "gpulet", "status", "--json"], stdout=subprocess.PIPE, text=True, check=True)
            failures += [f"{GUIDE}: {problem['text']}" for problem in json.loads(status.stdout)["problems"] if problem["grave"]]
        else:
            failures += [log.read_text(encoding="utf-8")[-1500:] for log in sorted(folder.glob("daemon-*.log"))]
    finally:
        for daemon in daemons:
            daemon.terminate()
        for daemon in daemons:
            daemon.wait(60)
    return 4, failures


class SelfTest(unittest.TestCase):
    def test_blocks_of_a_list(self):
        page = "## A\n\n1. x\n\n   ```\n   a \\\n       b\n   ```\n\n```\nno\n```\n## B\n\n   ```\n   c\n   ```\n"
        self.assertEqual(listed_blocks(page, "A"), ["a \\\n    b\n"])

    def test_requests_without_an_answer_in_time_are_found(self):
        model = {"name": "a", "offered": 100, "served": 95, "late": 1, "dropped": 2, "errors": 2}
        self.assertEqual(list(load_failures({"models": [model]})), [])
        self.assertEqual(len(list(load_failures({"models": [{**model, "late": 2}]}))), 1)

    def test_blocks(self):
        text = "a\n```\nx\n```\n\n```json\n{}\n```\n1. b\n\n   ```\n   y\n   ```\n"
        self.assertEqual(blocks_of(text), [("", "x\n"), ("json", "{}\n")])

    def test_plans(self):
        text = "```\nbuild/release/bin/gpulet schedule --x\n```\n```\ngpulet status\n```\n"
        self.assertEqual(len(plan_blocks(text)), 1)

    def test_models_files(self):
        text = '```json\n{"name": "a", "inputs": []}\n```\n```json\n{"listen": "x"}\n```\n```json\n{"models": "m.json"}\n```\n'
        self.assertEqual(list(models_files(text)), [{"models": [{"name": "a", "inputs": []}]}])


def has_torch():
    return subprocess.run([sys.executable, "-c", "import torch, torchvision"], capture_output=True, check=False).returncode == 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path)
    parser.add_argument("--only", choices=("commands", "models", "guide"))
    parser.add_argument("--self-test", action="store_true")
    options = parser.parse_args()
    if options.self_test:
        suite = unittest.defaultTestLoader.loadTestsFromTestCase(SelfTest)
        return 0 if unittest.TextTestRunner().run(suite).wasSuccessful() else 1
    if options.build is None:
        parser.error("--build is required")
    checks = {"commands": check_commands, "models": check_models, "guide": check_guide}
    count, failures, skipped = 0, [], False
    for name in [options.only] if options.only else ("commands", "models"):
        if name == "models" and not has_torch():
            print(f"check_examples: models skipped: {sys.executable} has no torch and torchvision")
            skipped = True
            continue
        with tempfile.TemporaryDirectory() as folder:
            checked, failed = checks[name](options.build.resolve(), Path(folder))
            count += checked
            failures += failed
    print("\n".join(failures + [f"check_examples: {count} examples, {len(failures)} failures"]))
    return 1 if failures else 77 if skipped and count == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
