#!/usr/bin/python3
"""Dynamic dimensions under load: BERT with 8 to 128 tokens, padded to buckets of 32, 64 and 128, or (`--equal`) in
batches of equal lengths, of which there are six.

Exports a BERT encoder as ONNX with a free number of tokens, measures it, finds the highest rate that the planner calls
schedulable for these lengths, and sends `--fraction` of it as a Poisson process. Beside that load, single requests of
random lengths are sent over HTTP; their answers are compared with those of PyTorch for the unpadded request.

    bench/serve/dynamic.py --build build/release --seconds 120 [--equal]

Aims: no more than 1 % of the requests violate the objective; every answer equals the single request's within 1e-3 of its
largest magnitude. Exits 1 where an aim was missed. Needs PyTorch, ONNX Runtime (scripts/onnxruntime-setup) and two cores,
one of which does nothing else.
"""

import argparse
import json
import math
import os
import pathlib
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

import torch

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
from example_models import networks  # noqa: E402

LEAST, MOST = 8, 128
BUCKETS = (32, 64, MOST)  # of padded requests
EQUAL = tuple(range(LEAST, MOST + 1, 24))  # the lengths of requests that are not padded
WIDTH = networks.Bert.WIDTH


class Encoder(torch.nn.Module):
    """BERT's encoder with a mask: INT64[n,L] ids and mask to FP32[n,L,768] hidden and FP32[n,768] pooled.

    Random weights. A masked place gets a large negative number before the softmax, so its weight is zero.
    """

    def __init__(self, layers):
        super().__init__()
        self.words = torch.nn.Embedding(networks.Bert.VOCABULARY, WIDTH)
        self.places = torch.nn.Embedding(MOST, WIDTH)
        self.norm = torch.nn.LayerNorm(WIDTH, eps=1e-12)
        self.layers = torch.nn.ModuleList(
            [networks.BertLayer(WIDTH, networks.Bert.HEADS) for _ in range(layers)])
        self.pooler = torch.nn.Linear(WIDTH, WIDTH)

    def layer(self, layer, x, bias):
        query, key, value = layer._split(layer.query(x)), layer._split(layer.key(x)), layer._split(layer.value(x))
        weights = (query @ key.transpose(-1, -2) / math.sqrt(WIDTH // networks.Bert.HEADS) + bias).softmax(-1)
        mixed = (weights @ value).transpose(1, 2).reshape(x.size(0), x.size(1), WIDTH)
        x = layer.attention_norm(x + layer.attended(mixed))
        return layer.output_norm(x + layer.narrow(torch.nn.functional.gelu(layer.widen(x))))

    def forward(self, ids, mask):
        places = torch.cumsum(torch.ones_like(ids), 1) - 1
        hidden = self.norm(self.words(ids) + self.places(places))
        bias = (1.0 - mask[:, None, None, :].to(hidden.dtype)) * -1e9
        for layer in self.layers:
            hidden = self.layer(layer, hidden, bias)
        return hidden, self.pooler(hidden[:, 0]).tanh()


def export(net, file):
    example = torch.ones(2, 16, dtype=torch.int64)
    free = {0: "batch", 1: "tokens"}
    with torch.no_grad():
        torch.onnx.export(net, (example, example), str(file), opset_version=13, input_names=["ids", "mask"],
                          output_names=["hidden", "pooled"],
                          dynamic_axes={"ids": free, "mask": free, "hidden": free, "pooled": {0: "batch"}})


def run(*command):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{command[0]} {command[1]} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def write(file, document):
    file.write_text(json.dumps(document, indent=1))
    return file


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def shares(equal):
    """The part of the requests that each bucket gets, where all lengths are equally frequent."""
    if equal:
        return {length: 1 / len(EQUAL) for length in EQUAL}
    shorter, parts = LEAST - 1, {}
    for bucket in BUCKETS:
        parts[bucket] = (bucket - shorter) / (MOST - LEAST + 1)
        shorter = bucket
    return parts


class Site:
    def __init__(self, args, folder):
        self.args, self.folder, self.bin = args, folder, pathlib.Path(args.build) / "bin"
        self.daemons = []
        self.sizes = [int(size) for size in args.sizes.split(",")]
        self.max_batch = max(int(batch) for batch in args.batches.split(","))

    def measure(self):
        tensors = [{"name": name, "type": "INT64", "shape": [-1]} for name in ("ids", "mask")]
        model = {"name": "bert", "file": "bert.onnx", "inputs": tensors,
                 "outputs": [{"name": "hidden", "type": "FP32", "shape": [-1, WIDTH]},
                             {"name": "pooled", "type": "FP32", "shape": [WIDTH]}],
                 "slo_ms": 1e5, "max_batch": self.max_batch}
        if self.args.equal:
            model["lengths"] = EQUAL
        else:
            model["pad"] = {"dim": 0, "value": 0, "buckets": BUCKETS}
        write(self.folder / "models.json", {"models": [model]})
        run(self.bin / "gpulet", "profile", "run", "--device", f"cpu:{self.args.core}", "--models",
            self.folder / "models.json", "--name", "cpu-core", "--out", self.folder / "profiles", "--sizes",
            self.args.sizes, "--batches", self.args.batches, "--proxy", self.bin / "gpulet-proxy-onnx", *self.args.profile)
        # One core that computes the longest requests alone takes this long for one.
        rows = (self.folder / "profiles/cpu-core/latency.csv").read_text().splitlines()
        columns = rows[0].split(",")
        cells = [dict(zip(columns, row.split(","))) for row in rows[1:]]
        self.longest_ms = next(float(cell["latency_ms"]) for cell in cells
                               if cell["model"] == f"bert@{MOST}" and cell["batch"] == "1" and cell["partition"] == "100")
        for cell in cells:
            print("  profile", cell)
        self.slo_ms = round(self.args.slo_factor * self.longest_ms)
        model["slo_ms"] = self.slo_ms
        self.model = model

    def schedulable(self, rate):
        device = {"type": "cpu-core", "partitioning": "cpu_quota", "cores": [self.args.core], "sizes": self.sizes,
                  "max_partitions": 2, "memory_mb": 8192}
        cluster = write(self.folder / "cluster.json", {"nodes": [{"name": "n0", "devices": [device]}]})
        demand = write(self.folder / "demand.json", {"models": [
            {"name": f"bert@{bucket}", "rate": rate * part, "slo_ms": self.slo_ms, "max_batch": self.max_batch}
            for bucket, part in shares(self.args.equal).items()]})
        command = [self.bin / "gpulet", "schedule", "--cluster", cluster, "--profiles", self.folder / "profiles",
                   "--demand", demand, "--margin", str(self.args.margin)]
        return subprocess.run(command, capture_output=True).returncode == 0

    def highest_rate(self):
        low, high = 0.0, 2000.0 / self.longest_ms * 4
        for _ in range(12):
            middle = (low + high) / 2
            low, high = (middle, high) if self.schedulable(middle) else (low, middle)
        if low == 0:
            sys.exit("no rate is schedulable; raise --slo-factor")
        return low

    def start(self, rate):
        self.model["rate"] = rate
        write(self.folder / "models.json", {"models": [self.model]})
        self.clients, backends, self.http = free_port(), free_port(), free_port()
        frontend = write(self.folder / "frontend.json", {
            "listen": f"127.0.0.1:{self.clients}", "backend_listen": f"127.0.0.1:{backends}",
            "http": f"127.0.0.1:{self.http}", "grpc": "off", "metrics": "off", "models": "models.json", "profiles": "profiles",
            "margin": self.args.margin})
        backend = write(self.folder / "backend.json", {
            "node": "n0", "frontend": f"127.0.0.1:{backends}", "model_store": str(self.folder / "store"),
            "proxy": str((self.bin / "gpulet-proxy-onnx").resolve()), "devices": [
                {"type": "cpu-core", "partitioning": "cpu_quota", "cores": [self.args.core], "sizes": self.sizes,
                 "max_partitions": 2, "memory_mb": 8192}]})
        for name, config in (("backend", backend), ("frontend", frontend)):
            if name == "frontend":
                self.leave_the_core()
            log = open(self.folder / f"{name}.log", "w")
            self.daemons.append(subprocess.Popen([self.bin / f"gpulet-{name}", "--config", config], stdout=log,
                                                 stderr=log))
        deadline = time.monotonic() + 300
        while time.monotonic() < deadline:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{self.http}/v2/models/bert/ready", timeout=2)
                return
            except OSError:  # a URLError is one, too
                if any(daemon.poll() is not None for daemon in self.daemons):
                    break
                time.sleep(0.2)
        sys.exit("bert is not ready:\n" + (self.folder / "frontend.log").read_text()[-4000:])

    def leave_the_core(self):
        """Keeps this process, and those that it starts from now on, off the core that runs the models."""
        others = os.sched_getaffinity(0) - {self.args.core}
        if not others:
            sys.exit("dynamic: needs a second core, for everything but the models")
        os.sched_setaffinity(0, others)

    def metadata(self):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.http}/v2/models/bert") as answer:
            return json.load(answer)

    def load(self, rate, seconds):
        workload = write(self.folder / "workload.json", {"models": [
            {"name": "bert", "rate": rate, "slo_ms": self.slo_ms, "lengths": [LEAST, MOST]}]})
        return subprocess.Popen([self.bin / "gpulet", "load", "--target", f"127.0.0.1:{self.clients}", "--workload",
                                 workload, "--seconds", str(seconds), "--json"], stdout=subprocess.PIPE, text=True)

    def ask(self, ids, mask):
        inputs = [{"name": name, "datatype": "INT64", "shape": list(values.shape), "data": values.flatten().tolist()}
                  for name, values in (("ids", ids), ("mask", mask))]
        body = json.dumps({"inputs": inputs}).encode()
        with urllib.request.urlopen(f"http://127.0.0.1:{self.http}/v2/models/bert/infer", body, timeout=60) as answer:
            return {output["name"]: torch.tensor(output["data"]).reshape(output["shape"])
                    for output in json.load(answer)["outputs"]}

    def stop(self):
        for daemon in reversed(self.daemons):
            daemon.send_signal(signal.SIGTERM)
        for daemon in self.daemons:
            daemon.wait(timeout=60)


def compare(site, net, until, seed):
    """Sends single requests while the load runs. The largest difference and the number of answers."""
    generator, worst, answers = random.Random(seed), 0.0, 0
    while time.monotonic() < until:
        length = generator.choice(EQUAL) if site.args.equal else generator.randint(LEAST, MOST)
        ids = torch.tensor([[generator.randrange(1, networks.Bert.VOCABULARY) for _ in range(length)]])
        mask = torch.ones_like(ids)
        try:
            answered = site.ask(ids, mask)
        except urllib.error.HTTPError as error:
            print(f"  a single request was refused: {error.code} {error.read().decode()}")
            continue
        with torch.inference_mode():
            expected = dict(zip(("hidden", "pooled"), net(ids, mask)))
        for name, tensor in expected.items():
            if answered[name].shape != tensor.shape:
                return math.inf, answers
            worst = max(worst, float((answered[name] - tensor).abs().max() / tensor.abs().max()))
        answers += 1
        time.sleep(site.args.pause)
    return worst, answers


def verdict(ok, text):
    print(f"{'ok' if ok else 'MISSED'}: {text}")
    return ok


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=ROOT / "build/release")
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--fraction", type=float, default=0.9, help="of the highest schedulable rate")
    parser.add_argument("--equal", action="store_true", help="batches of equal lengths instead of padded ones")
    parser.add_argument("--layers", type=int, default=networks.Bert.LAYERS)
    parser.add_argument("--slo-factor", type=float, default=6, help="of the longest request's time on a whole core")
    parser.add_argument("--margin", type=float, default=1.1, help="by which plans multiply every latency")
    parser.add_argument("--sizes", default="50,100", help="of gpulets, in percent of the core")
    parser.add_argument("--batches", default="1,2,4")
    parser.add_argument("--core", type=int, default=0)
    parser.add_argument("--pause", type=float, default=5, help="seconds between single requests")
    parser.add_argument("--profile", nargs=argparse.REMAINDER, default=[], help="options of gpulet profile run")
    args = parser.parse_args()
    torch.manual_seed(1)
    torch.set_num_threads(1)
    net = Encoder(args.layers).eval()
    with tempfile.TemporaryDirectory(prefix="gpulet-dynamic-") as folder:
        site = Site(args, pathlib.Path(folder))
        export(net, site.folder / "bert.onnx")
        site.measure()
        highest = site.highest_rate()
        rate = args.fraction * highest
        print(f"objective {site.slo_ms} ms; schedulable up to {highest:.2f} requests/s; sending {rate:.2f} for "
              f"{args.seconds:.0f} s")
        try:
            site.start(rate)
            print("metadata", [(one["name"], one["shape"]) for one in site.metadata()["inputs"]])
            load = site.load(rate, args.seconds)
            worst, answers = compare(site, net, time.monotonic() + args.seconds, seed=2)
            row = json.loads(load.communicate()[0])["models"][0]
        finally:
            site.stop()
    print(f"offered {row['offered']}, served {row['served']}, late {row['late']}, dropped {row['dropped']}, errors "
          f"{row['errors']}, p50 {row['p50_ms']} ms, p99 {row['p99_ms']} ms")
    kept = verdict(row["violation"] <= 0.01, f"{100 * row['violation']:.2f} % of the requests violate the objective")
    equal = verdict(answers > 0 and worst < 1e-3,
                    f"{answers} answers differ from those of single requests by at most {worst:.1e}")
    sys.exit(0 if kept and equal else 1)


if __name__ == "__main__":
    main()
