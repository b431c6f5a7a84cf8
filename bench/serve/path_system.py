"""A system whose path is measured: a frontend, or several of one cluster, a backend, and a proxy that answers at once.
Shared by the benches `path`, `forward` and `threads`."""
import contextlib
import json
import os
import pathlib
import re
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts"))
from cluster_site import free_port  # noqa: E402

SIZES = {"3 KB": 784, "600 KB": 150528}  # FP32 elements of one input


def write_profile(folder, batch_ms):
    """Every batch takes the same time, so that the plan has the largest batches."""
    latency = folder / "latency.csv"
    rows = ["model,batch,partition,latency_ms"]
    for model, (largest, ms) in batch_ms.items():
        batch = 1
        while batch <= largest:
            rows.append(f"{model},{batch},100,{ms * (1 + batch * 1e-6)}")
            batch *= 2
    latency.write_text("\n".join(rows) + "\n")
    return latency


def write_models(folder, binaries):
    models = []
    for name, elements, rate, max_batch in (("small", SIZES["3 KB"], 40000, 64), ("large", SIZES["600 KB"], 2000, 8)):
        (folder / f"{name}.pt").write_text(name)
        models.append({
            "name": name, "file": f"{name}.pt", "slo_ms": 200, "rate": rate, "max_batch": max_batch,
            "inputs": [{"name": "x", "type": "FP32", "shape": [elements]}],
            "outputs": [{"name": "y", "type": "FP32", "shape": [10]}]})
    (folder / "models.json").write_text(json.dumps({"models": models}))
    latency = write_profile(folder, {"small": (64, 0.4), "large": (8, 0.4)})
    subprocess.run([binaries / "gpulet", "profile", "import", "--name", "instant", "--latency", latency, "--out",
                    folder / "profiles"], check=True, stdout=subprocess.DEVNULL)


def frontend_keys(io_threads=None):
    """What the configurations of all frontends have. `io_threads`: None for programs that do not know the key."""
    keys = {"listen": "127.0.0.1:0", "backend_listen": "127.0.0.1:0", "http": "127.0.0.1:0", "grpc": "127.0.0.1:0",
            "metrics": "off", "models": "models.json", "profiles": "profiles"}
    return keys if io_threads is None else {**keys, "io_threads": io_threads}


def write_configuration(folder, binaries, io_threads, certificates):
    write_models(folder, binaries)
    keys = frontend_keys(io_threads)
    if certificates:
        keys["tls"] = {"certificate": str(certificates / "frontend.pem"), "key": str(certificates / "frontend.key")}
    (folder / "frontend.json").write_text(json.dumps(keys))


def backend_configuration(folder, binaries, *ports):
    # Two undivided devices, one for each model: the proxy answers at once.
    addresses = [f"127.0.0.1:{port}" for port in ports]
    # "frontend" for programs from before there could be several.
    frontends = {"frontend": addresses[0]} if len(addresses) == 1 else {"frontends": addresses}
    (folder / "backend.json").write_text(json.dumps({
        "node": "bench", **frontends, "model_store": "store", "profiles": "profiles",
        "proxy": str(binaries / "gpulet-proxy-simulated"),
        "devices": [{"type": "instant", "partitioning": "cpu_quota", "cores": [core], "sizes": [100]}
                    for core in (0, 1)]}))


@contextlib.contextmanager
def process(command, pattern, log):
    """Starts a program, waits for the line with its ports, yields the match, ends the program with SIGTERM."""
    with open(log, "w", encoding="utf-8") as sink:
        child = subprocess.Popen([str(word) for word in command], stdout=sink, stderr=sink)
    try:
        deadline = time.monotonic() + 20
        while True:
            found = re.search(pattern, pathlib.Path(log).read_text(encoding="utf-8"))
            if found:
                break
            if child.poll() is not None or time.monotonic() > deadline:
                sys.exit(f"{command[0]} did not start:\n{pathlib.Path(log).read_text(encoding='utf-8')}")
            time.sleep(0.02)
        yield found
    finally:
        child.terminate()
        child.wait(timeout=30)


def wait_until_serving(binaries, port, *local):
    """Returns the frontend's status, once it serves, itself or through another frontend, and no plan is on its way."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        answer = subprocess.run([binaries / "gpulet", "status", "--target", f"127.0.0.1:{port}", "--json", *local],
                                capture_output=True, text=True, check=False)
        if answer.returncode == 0:
            status = json.loads(answer.stdout)
            if status["frontend"]["state"] in ("serving", "forwarding") and not status["frontend"]["reorganising"]:
                return status
        time.sleep(0.1)
    sys.exit("the system does not serve within 30 s")


def processes(folder, file=""):
    """The folders in /proc of all processes that have this file, or any file of the folder, on their command line."""
    for entry in pathlib.Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and str(folder / file).encode() in (entry / "cmdline").read_bytes():
                yield entry


def processor_seconds(folder, file=""):
    """Of these processes."""
    ticks = 0
    for entry in processes(folder, file):
        with contextlib.suppress(OSError):
            fields = (entry / "stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()
            ticks += int(fields[11]) + int(fields[12])  # user and system
    return ticks / os.sysconf("SC_CLK_TCK")


def default_load_threads():
    """As many as `gpulet load` has by default."""
    return min(max((os.cpu_count() or 1) // 4, 1), 8)


def load_command(binaries, protocol, port, elements, model, seconds, connections, depth, *more):
    """Of the program that drives a frontend, or without a model a bare echo server. It prints a line of JSON."""
    command = [binaries / ("bench_grpc_load" if protocol == "grpc" else "bench_net_load"), "--port", port,
               "--bytes", 4 * elements, "--seconds", seconds, "--connections", connections, "--depth", depth, *more]
    if protocol == "http":
        command.append("--http")
    if model:
        command += ["--model", model, "--timeout-ms", 2000]
    return [str(word) for word in command]


def without_failures(result):
    if result["failures"]:
        sys.exit(f"{result['failures']} of {result['replies']} requests failed")
    return result


def drive(*what, threads=1):
    """`what`: as load_command()."""
    command = load_command(*what, "--warm-up", 0.5, "--threads", threads)
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    if answer.returncode != 0:
        sys.exit(f"{command[0]} failed: {answer.stderr}")
    return without_failures(json.loads(answer.stdout))


# Connections and requests in flight on each, at saturation. HTTP has one.
LOADS = {"own": {"3 KB": (8, 64), "600 KB": (4, 8)}, "http": {"3 KB": (128, 1), "600 KB": (16, 1)},
         "grpc": {"3 KB": (8, 16), "600 KB": (4, 4)}}


PORTS = r"clients:? \S+:(\d+),? +backends:? \S+:(\d+)[\s\S]*HTTP:? \S+:(\d+),? +gRPC:? \S+:(\d+)"


def start_system(stack, folder, binaries, io_threads=None, certificates=None):
    """The ports of a frontend that serves, by protocol. `certificates`: the folder of scripts/make-certificates; clients
    then need TLS."""
    folder.mkdir()
    write_configuration(folder, binaries, io_threads, certificates)
    front = stack.enter_context(process(
        [binaries / "gpulet-frontend", "--config", folder / "frontend.json"], PORTS, folder / "frontend.log"))
    backend_configuration(folder, binaries, front.group(2))
    stack.enter_context(process([binaries / "gpulet-backend", "--config", folder / "backend.json"], r"connected",
                                folder / "backend.log"))
    wait_until_serving(binaries, front.group(1), *(["--tls-authority", certificates / "authority.pem"] if certificates else []))
    return {"own": front.group(1), "http": front.group(3), "grpc": front.group(4)}


def start_cluster(stack, folder, binaries, io_threads=None):
    """The ports by protocol, and the configuration files, of two frontends of one cluster by role: "direct" leads, and
    "forwarded" forwards to it."""
    folder.mkdir()
    write_models(folder, binaries)
    etcd, peer = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
    stack.enter_context(process(
        ["etcd", "--data-dir", folder / "etcd", "--listen-client-urls", etcd, "--advertise-client-urls", etcd,
         "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", f"default={peer}"],
        r"ready to serve client requests", folder / "etcd.log"))
    found = {}
    for member in ("f0", "f1"):
        (folder / f"{member}.json").write_text(json.dumps({
            **frontend_keys(io_threads),
            "cluster": {"name": "bench", "member": member, "peer_listen": f"127.0.0.1:{free_port()}",
                        "etcd": [etcd.removeprefix("http://")],
                        "settling_s": 600}}))  # the leader serves all models
        found[member] = stack.enter_context(process(
            [binaries / "gpulet-frontend", "--config", folder / f"{member}.json"], PORTS, folder / f"{member}.log"))
    backend_configuration(folder, binaries, *(ports.group(2) for ports in found.values()))
    stack.enter_context(process([binaries / "gpulet-backend", "--config", folder / "backend.json"], r"connected",
                                folder / "backend.log"))
    by_role, files = {}, {}
    for member, ports in found.items():
        status = wait_until_serving(binaries, ports.group(1), "--local")
        role = "direct" if status["cluster"]["leads"] else "forwarded"
        by_role[role] = {"own": ports.group(1), "http": ports.group(3), "grpc": ports.group(4)}
        files[role] = f"{member}.json"
    return by_role, files
