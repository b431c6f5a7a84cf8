"""`gpulet serve` as a process of a check: its addresses, what it left out, and requests with binary tensors. Standard library only."""
import json
import os
import re
import signal
import struct
import subprocess
import threading
import time
import urllib.error
import urllib.request

STARTS_WITHIN_S = 300
ANSWERS_WITHIN_S = 120
ENDS_WITHIN_S = 60
# The element of each datatype in an array.array; BYTES, FP16 and BF16 are bytes.
ELEMENTS = {"FP32": "f", "FP64": "d", "INT8": "b", "UINT8": "B", "BOOL": "B", "INT16": "h", "INT32": "i", "INT64": "q"}


class Refused(Exception):
    """The program did not serve, or a request failed; the text says why."""


class Served:
    """Serves from the end of the constructor until stop(). `folder` is for temporary files."""

    def __init__(self, programs, folder, *arguments):
        self.errors, self.output = [], []
        begin = time.monotonic()
        self.process = subprocess.Popen(
            [programs / "gpulet", "serve", *map(str, arguments)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True, env={**os.environ, "TMPDIR": str(folder)}, start_new_session=True)
        self.serving = threading.Event()
        self.readers = [threading.Thread(target=self._read_output), threading.Thread(target=self._read_errors)]
        for reader in self.readers:
            reader.start()
        if not self.serving.wait(STARTS_WITHIN_S) or self.process.poll() is not None:
            self.stop()
            raise Refused("".join(self.errors).strip() or f"it did not serve within {STARTS_WITHIN_S} s")
        self.seconds = time.monotonic() - begin
        text = "".join(self.output)
        self.http, self.grpc, self.target = (
            re.search(pattern, text)[1] for pattern in (r"http://([^/]+)/v2/models", r"gRPC: (\S+)", r"--target: (\S+)"))

    def _read_output(self):
        for line in self.process.stdout:
            self.output.append(line)
            if line.startswith("Ctrl-C stops"):
                self.serving.set()
        self.process.wait()
        self.serving.set()

    def _read_errors(self):
        for line in self.process.stderr:
            self.errors.append(line)

    def left_out(self):
        """The reason for each model that is not served."""
        return left_out_in("".join(self.errors))

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        try:
            self.process.wait(ENDS_WITHIN_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        for reader in self.readers:
            reader.join()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    def call(self, path, body=None, headers=None):
        """The headers and the bytes of the answer."""
        request = urllib.request.Request(f"http://{self.http}/{path}", body, headers or {})
        try:
            with urllib.request.urlopen(request, timeout=ANSWERS_WITHIN_S) as answer:
                return answer.headers, answer.read()
        except urllib.error.HTTPError as failure:
            raise Refused(f"{path}: {failure.code} {failure.read().decode(errors='replace')[:1000]}") from None
        except OSError as failure:
            raise Refused(f"{path}: {failure}") from None

    def document(self, path, body=None):
        return json.loads(self.call(path, body)[1])

    def models(self):
        """The names of the models that serve."""
        return sorted(one["name"] for one in self.document("v2/repository/index", b'{"ready":true}'))

    def infer(self, name, inputs):
        """Sends tensors, documents with `name`, `datatype`, `shape` and `bytes`, and returns the outputs as such."""
        head = json.dumps({
            "parameters": {"binary_data_output": True, "timeout": ANSWERS_WITHIN_S * 1_000_000},
            "inputs": [{**{key: one[key] for key in ("name", "datatype", "shape")},
                        "parameters": {"binary_data_size": len(one["bytes"])}} for one in inputs]}).encode()
        length = "Inference-Header-Content-Length"
        headers, body = self.call(f"v2/models/{name}/infer", head + b"".join(one["bytes"] for one in inputs),
                                  {length: str(len(head)), "Content-Type": "application/octet-stream"})
        begin, outputs = int(headers[length]), []
        for one in json.loads(body[:begin])["outputs"]:
            end = begin + one["parameters"]["binary_data_size"]
            outputs.append({"name": one["name"], "datatype": one["datatype"], "shape": one["shape"], "bytes": body[begin:end]})
            begin = end
        return outputs


def left_out_in(text):
    """The reason for each model that `gpulet serve` says it leaves out."""
    return dict(re.findall(r"^left out: ([^:]+): (.*)", text, re.M))


def strings_of(data):
    """The elements of a BYTES tensor."""
    elements = []
    while data:
        (length,) = struct.unpack_from("<I", data)
        elements.append(data[4:4 + length])
        data = data[4 + length:]
    return elements


def bytes_of(elements):
    return b"".join(struct.pack("<I", len(each)) + each for each in elements)
