#!/usr/bin/env python3
"""`gpulet serve` as a user sees it: an ONNX file, the lines that it prints, Ctrl-C, a second start, wrong files.

    tests/tools/serve_program_test.py FOLDER_OF_PROGRAMS

Needs ONNX Runtime (scripts/setup) and curl. Standard library only. Exits 0, or 1 with what was wrong.
"""
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import threading


# ---- a small ONNX file: scores = image, [n, 4] (docs of protobuf's wire format)

def varint(number):
    out = b""
    while number >= 0x80:
        out += bytes([number & 0x7F | 0x80])
        number >>= 7
    return out + bytes([number])


def content(field, value):
    value = value.encode() if isinstance(value, str) else value
    return varint(field << 3 | 2) + varint(len(value)) + value


def number(field, value):
    return varint(field << 3) + varint(value)


def tensor_of(name, rows, kind):
    shape = content(1, content(2, rows)) + content(1, number(1, 4))
    return content(1, name) + content(2, content(1, number(1, kind) + content(2, shape)))


FLOAT, HALF = 1, 10  # of TensorProto.DataType


# "Neg" gives another answer.
def model(rows="n", kind=FLOAT, operation="Identity"):
    node = content(1, "image") + content(2, "scores") + content(4, operation)
    graph = content(1, node) + content(2, "g") + content(11, tensor_of("image", rows, kind)) \
        + content(12, tensor_of("scores", rows, kind))
    return number(1, 7) + content(7, graph) + content(8, number(2, 13))


# ---- the program

class Serve:
    folder = None  # for temporary files

    def __init__(self, programs, *arguments):
        # A killed command leaves its folder behind.
        temporary = {**os.environ, "TMPDIR": str(Serve.folder)}
        self.process = subprocess.Popen([programs / "gpulet", "serve", *arguments], stdout=subprocess.PIPE, env=temporary,
                                        stderr=subprocess.PIPE, text=True, start_new_session=True)
        self.output = ""
        self.errors = ""
        self.reader = threading.Thread(target=self.read_errors)
        self.reader.start()

    def read_errors(self):
        self.errors = self.process.stderr.read()

    def until(self, text):
        for line in self.process.stdout:
            self.output += line
            if text in line:
                return self.output
        self.process.wait()
        self.reader.join()
        raise AssertionError(f"gpulet serve ended with {self.process.returncode} before {text!r}:\n"
                             f"{self.output}{self.errors}")

    def stop(self, how=signal.SIGINT):
        self.process.send_signal(how)
        code = self.process.wait(60)
        self.reader.join()
        return code


def shell(line):
    return subprocess.run(["sh", "-c", line], capture_output=True, text=True, check=True, timeout=30).stdout


def part(output, heading, following):
    return output.split(heading)[1].split(following)[0].strip()


def expect(condition, what, *details):
    if not condition:
        raise AssertionError(what + "".join(f"\n{detail}" for detail in details))


def daemons_of(folder):
    found = []
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            line = (process / "cmdline").read_bytes()
        except OSError:
            continue
        if str(folder).encode() in line:
            found.append(line)
    return found


def add(programs, target, *arguments):
    run = subprocess.run([programs / "gpulet", "models", "add", *arguments, "--target", target, "--json"], capture_output=True,
                         text=True, timeout=120)
    return run.returncode, run.stdout, run.stderr


# `gpulet models add` with a frontend that serves.
def check_adding(programs, folder, options):
    served = Serve(programs, *options, "--slo", "80ms")
    target = re.search(r"--target: (\S+)", served.until("Ctrl-C stops"))[1]
    other = folder / "other.onnx"
    other.write_bytes(model(rows="rows"))
    measure = ["--cache", folder / "cache", "--measure-seconds", "2"]

    code, printed, errors = add(programs, target, other, "--slo", "90ms", "--print", *measure)
    entry = json.loads(printed)["models"][0]
    expect(code == 0 and entry["slo_ms"] == 90 and entry["measured"]["cpu-core"]["cells"], "--print is wrong", printed, errors)
    expect("measuring" in errors, "it did not measure", errors)
    code, printed, errors = add(programs, target, other, "--slo", "90ms", *measure)
    added = json.loads(printed)["models"][0]
    expect(code == 0 and added["name"] == "other" and added["serves"], "it was not added", printed, errors)
    expect("measuring" not in errors, "it measured again", errors)
    code, printed, errors = add(programs, target, folder / "echo.onnx", "--name", "third", "--no-wait", *measure)
    expect(code == 0 and json.loads(printed)["models"][0]["name"] == "third" and "objective" in errors,
           "--no-wait failed", printed, errors)
    waited = subprocess.run([programs / "gpulet", "wait", "third", "--target", target], capture_output=True, text=True, timeout=120)
    expect(waited.returncode == 0, "the third model does not serve", waited.stderr)

    elsewhere = folder / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "far.onnx").write_bytes(model())
    for arguments, said in (([other], "--name"), ([elsewhere / "far.onnx"], "far.onnx"),
                            ([other, "--name", "fourth", "--type", "h200"], "--type"),
                            ([other, "--name", "fourth", "--device", "gpu"], "--device"),
                            ([folder / "missing.onnx"], "missing.onnx"), ([other, "--name", "a b"], "--name")):
        code, printed, errors = add(programs, target, *arguments, *measure)
        expect(code == 2 and not printed and said in errors, f"{arguments}: exit {code}", printed, errors)
    expect(served.stop() == 0, "Ctrl-C did not end it with 0", served.errors)
    code, printed, errors = add(programs, target, other, *measure)
    expect(code == 1, "there is no frontend any more", printed, errors)


def infer(http, path):
    request = json.dumps({"inputs": [{"name": "image", "datatype": "FP32", "shape": [2, 4], "data": [1, 2, 3, 4] * 2}]})
    answer = subprocess.run(["curl", "-s", "-d", request, f"http://{http}/v2/models/{path}/infer"], capture_output=True, text=True,
                            check=True, timeout=30).stdout
    return json.loads(answer)


def eventually(what, condition):
    for _ in range(600):
        if condition():
            return
        threading.Event().wait(0.1)
    raise AssertionError(f"not within a minute: {what}")


def write(file, data):
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(data.encode() if isinstance(data, str) else data)


# A repository with unsupported models serves the others and lists why; a new version folder takes over.
def check_repository(programs, folder):
    root = folder / "repository"
    tensors = 'input {name: "image" data_type: TYPE_FP32 dims: 4} output {name: "scores" data_type: TYPE_FP32 dims: 4}'
    for version, operation in (("1", "Identity"), ("7", "Neg")):
        write(root / "pinned" / version / "model.onnx", model(operation=operation))
    write(root / "pinned" / "config.pbtxt", "max_batch_size: 8 version_policy {specific {versions: [1]}} " + tensors)
    write(root / "latest" / "3" / "model.onnx", model())
    write(root / "latest" / "config.pbtxt", "max_batch_size: 8 instance_group {count: 2} model_warmup {name: \"w\"} " + tensors)
    write(root / "pipeline" / "config.pbtxt", 'platform: "ensemble" ensemble_scheduling {step {model_name: "latest"}}')
    write(root / "code" / "config.pbtxt", 'backend: "python"')
    write(root / "code" / "1" / "model.py", "pass")
    write(root / "engine" / "1" / "model.plan", "engine")
    write(root / "corrupt" / "1" / "model.onnx", "not a model")
    # The file describes itself well, and cannot run.
    write(root / "broken" / "1" / "model.onnx", model(operation="NoSuchOperation"))
    write(root / "both" / "config.pbtxt", "max_batch_size: 8 " + tensors.replace("dims: 4", "dims: 5"))
    write(root / "both" / "1" / "model.onnx", model())
    served = Serve(programs, root, "--cache", folder / "cache", "--measure-seconds", "2", "--slo", "80ms")
    output = served.until("Ctrl-C stops")
    http = re.search(r"http://([^/]+)/v2/models", output)[1]
    expect(infer(http, "pinned")["outputs"][0]["data"] == [1, 2, 3, 4] * 2, "version_policy was not kept")
    expect(infer(http, "pinned/versions/1")["model_version"] == "1", "versions/1 is not served")
    expect("error" in infer(http, "pinned/versions/7"), "versions/7 is served")
    expect(infer(http, "latest/versions/3")["outputs"][0]["data"] == [1, 2, 3, 4] * 2, "versions/3 is not served")

    write(root / "latest" / "4" / "model.onnx", model(operation="Neg"))
    eventually("versions/4 serves", lambda: "outputs" in infer(http, "latest/versions/4"))
    expect(infer(http, "latest")["outputs"][0]["data"] == [-1, -2, -3, -4] * 2, "the old version answers")
    expect("error" in infer(http, "latest/versions/3"), "versions/3 is still served")
    expect(served.stop() == 0, "Ctrl-C did not end it with 0", served.errors)
    for name in ("pipeline", "code", "engine", "corrupt", "broken", "both"):
        expect(f"left out: {name}: " in served.errors, f"{name} is not listed", served.errors)
    expect("latest: not used of config.pbtxt: instance_group, model_warmup" in served.errors, "what is not used is missing",
           served.errors)


# Types without a form in JSON.
def check_half_precision(programs, folder):
    file = folder / "half.onnx"
    file.write_bytes(model(kind=HALF))
    served = Serve(programs, "--measure-seconds", "2", "--cache", folder / "cache", "--slo", "80ms", file)
    output = served.until("Ctrl-C stops")
    answer = shell(f"cd {folder}; " + part(output, "with curl:", "The same in Python"))
    expect(answer.startswith("HTTP 200"), "curl's request failed", answer)
    printed = subprocess.run([sys.executable, "-c", part(output, "in Python:", "dashboard:")], capture_output=True,
                             text=True, timeout=30)
    expect("scores [1, 4] [0.0, 0.0, 0.0, 0.0]" in printed.stdout, "Python's answer is wrong", printed.stdout, printed.stderr)
    expect(served.stop() == 0, "Ctrl-C did not end it with 0", served.errors)


def serving_folders(folder):
    return sorted(folder.glob("gpulet-serve-*"))


# However it ends, no copies of the models stay for long.
def check_ends(programs, folder, options):
    for how in (signal.SIGHUP, signal.SIGPIPE):
        before = serving_folders(folder)
        served = Serve(programs, *options, "--slo", "80ms")
        served.until("Ctrl-C stops")
        expect(served.stop(how) == 0, f"{how} did not end it with 0", served.errors)
        left = [one for one in serving_folders(folder) if one not in before]
        expect(not left, f"{how} left a folder", left)
    served = Serve(programs, *options, "--slo", "80ms")
    served.until("Ctrl-C stops")
    killed = serving_folders(folder)
    served.stop(signal.SIGKILL)
    eventually("the daemons end", lambda: not daemons_of("gpulet-serve-"))
    expect(killed, "a killed program leaves its folder")
    served = Serve(programs, *options, "--slo", "80ms")
    output = served.until("Ctrl-C stops")
    expect(not [one for one in killed if one.exists()], "an abandoned folder is left", killed)

    # A port that is asked for and taken is an error; so is an objective that no batch keeps.
    port = re.search(r"http://[^/]+:(\d+)/v2/models", output)[1]
    for wrong, said in ((["--http-port", port], "--http-port"), (["--http-port", "9", "--grpc-port", "9"], "--grpc-port"),
                        (["--slo", "0.00001ms"], "--slo"), (["--device", "gpu7"], "--device"),
                        (["--name", "a b"], "--name")):
        other = Serve(programs, *options, *wrong)
        other.process.stdout.read()
        code = other.process.wait(60)
        other.reader.join()
        expect(code == 2 and said in other.errors, f"{wrong}: exit {code}", other.errors)
    expect(served.stop() == 0, "Ctrl-C did not end it with 0", served.errors)


def check(programs, folder):
    Serve.folder = folder
    file = folder / "echo.onnx"
    file.write_bytes(model())
    options = [file, "--cache", folder / "cache", "--measure-seconds", "2"]

    served = Serve(programs, *options)
    output = served.until("Ctrl-C stops")
    expect("objective" in output, "no objective was proposed", output)
    answer = json.loads(shell(part(output, "with curl:", "The same in Python")))
    expect(answer["outputs"][0]["name"] == "scores", "curl's answer is wrong", answer)
    printed = subprocess.run([sys.executable, "-c", part(output, "in Python:", "dashboard:")], capture_output=True,
                             text=True, check=True, timeout=30).stdout
    expect("scores [1, 4] [0" in printed, "Python's answer is wrong", printed)
    dashboard = re.search(r"dashboard: (\S+)", output)[1]
    expect("<html" in shell(f"curl -s {dashboard}"), "the dashboard is missing")
    expect(served.stop() == 0, "Ctrl-C did not end it with 0", served.errors)
    expect("measuring" in served.errors, "it did not measure", served.errors)

    check_adding(programs, folder, options)
    check_repository(programs, folder)
    check_half_precision(programs, folder)
    check_ends(programs, folder, options)

    # From the cache, with an objective.
    served = Serve(programs, *options, "--slo", "80ms")
    output = served.until("Ctrl-C stops")
    expect("within 80 ms" in output and "objective" not in output, "--slo was not used", output)
    expect(served.stop(signal.SIGTERM) == 0, "SIGTERM did not end it with 0", served.errors)
    expect("measuring" not in served.errors, "it measured again", served.errors)

    # The daemons end with it, however it ends.
    served = Serve(programs, *options, "--slo", "80ms")
    served.until("Ctrl-C stops")
    expect(daemons_of("gpulet-serve-"), "the daemons were not found")
    served.stop(signal.SIGKILL)
    eventually("the daemons end", lambda: not daemons_of("gpulet-serve-"))

    site = folder / "site"
    written = subprocess.run([programs / "gpulet", "serve", *options, "--slo", "80ms", "--write", site], capture_output=True, text=True,
                             timeout=60)
    expect(written.returncode == 0, "--write failed", written.stderr)
    for name in ("frontend.json", "backend.json"):
        checked = subprocess.run([programs / "gpulet", "config", "check", site / name], capture_output=True, text=True, timeout=60)
        expect(checked.returncode == 0, f"{name} of --write is wrong", checked.stdout, checked.stderr)

    wrong = folder / "wrong.onnx"
    wrong.write_bytes(b"not a model")
    for arguments in ([wrong], [folder / "missing.onnx"], [file, "--slo", "fast"], [file, "--shape", "image:4"]):
        served = Serve(programs, *arguments, "--cache", folder / "cache")
        served.process.stdout.read()
        code = served.process.wait(60)
        served.reader.join()
        expect(code == 2 and served.errors.startswith("gpulet: "), f"{arguments}: exit {code}", served.errors)


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    with tempfile.TemporaryDirectory(prefix="gpulet-serve-test-") as folder:
        try:
            check(pathlib.Path(sys.argv[1]), pathlib.Path(folder))
        except (AssertionError, subprocess.SubprocessError) as failure:
            sys.exit(f"serve_program_test: {failure}")
    print("serve_program_test: all is well")


if __name__ == "__main__":
    main()
