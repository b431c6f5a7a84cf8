"""A cluster on this machine for demonstrations and benches: etcd, three frontends f0 to f2, and two backends with
simulated devices, as processes on loopback. They serve the models of MODELS; each has a type of device of its own, so that
each frontend owns one."""
import contextlib
import http.client
import itertools
import json
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FRONTENDS = 3
NODES = 2
MODELS = ["a", "c", "d"]
REQUEST = json.dumps({"inputs": [{"name": "x", "datatype": "UINT8", "shape": [1, 1], "data": [1]}]})


def free_port():
    """Below the ports that the system gives to connections."""
    while True:
        port = random.randint(10000, 32767)
        with socket.socket() as one, contextlib.suppress(OSError):
            one.bind(("127.0.0.1", port))
            return port


def write(file, document):
    file.write_text(json.dumps(document) if not isinstance(document, str) else document, encoding="utf-8")
    return file


def write_profile(folder, model):
    """A device type on which a batch of n of the model takes 2 + 2n ms."""
    folder.mkdir(parents=True)
    write(folder / "profile.json", {"format": 1, "name": folder.name, "provenance": {}, "models": {model: {}}})
    rows = ["model,batch,partition,latency_ms"]
    rows += [f"{model},{batch},{percent},{(2 + 2 * batch) * 100 / percent}"
             for percent in (20, 40, 60, 80, 100) for batch in (1, 2, 4, 8, 16)]
    return write(folder / "latency.csv", "\n".join(rows) + "\n")


def missing_programs(binaries):
    """Why a site cannot start from that folder, with the fix; empty if it can."""
    programs = ["gpulet", "gpulet-frontend", "gpulet-backend", "gpulet-proxy-simulated"]
    missing = [name for name in programs if not (Path(binaries) / name).exists()]
    if missing:
        return (f"{binaries} has no {', '.join(missing)}; build them: cmake --preset release && "
                f"cmake --build build/release --target {' '.join(programs)}")
    if shutil.which("etcd") is None:
        return "etcd is not installed; run scripts/setup --for test"
    return ""


class ClusterSite:
    """The processes. Ends them all when it is left."""

    def __init__(self, binaries, lease_s, frontends_use=None, daemons=None, io_threads=None):
        """`frontends_use`: called with etcd's port, returns the port that the frontends use instead.
        `daemons`: the folder of the daemons, where it is not that of the other programs. `io_threads`: the
        frontends' key; None for its default, and for daemons that do not know it."""
        self.binaries, self.lease_s = Path(binaries), lease_s
        self.daemons = Path(daemons or binaries)
        self.more_keys = {} if io_threads is None else {"io_threads": io_threads}
        self.frontends_use = frontends_use or (lambda port: port)
        self.folder = Path(tempfile.mkdtemp(prefix="gpulet-cluster-"))
        self.processes = []
        self.frontends = [None] * FRONTENDS
        self.backends = [None] * NODES
        self.failures = []  # (when it began, the frontend, why) of each request without a result
        self.etcd = None
        self.turns = itertools.count()  # of the models
        self.http = [free_port() for _ in range(FRONTENDS)]
        self.clients = [free_port() for _ in range(FRONTENDS)]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in reversed(self.processes):
            process.send_signal(signal.SIGTERM)
        for process in self.processes:
            try:
                process.wait(timeout=15)
            except subprocess.TimeoutExpired:
                process.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def run(self, name, *command):
        log = open(self.folder / f"{name}.log", "a", encoding="utf-8")  # closed with this process
        self.processes.append(subprocess.Popen([str(word) for word in command], stdout=log, stderr=log))
        return self.processes[-1]

    def start_etcd(self, data="etcd"):
        client, peer = (f"http://127.0.0.1:{port}" for port in self.etcd_ports)
        self.etcd = self.run(data, "etcd", "--data-dir", self.folder / data, "--listen-client-urls", client,
                             "--advertise-client-urls", client, "--listen-peer-urls", peer,
                             "--initial-advertise-peer-urls", peer, "--initial-cluster", f"default={peer}")

    def start_frontend(self, i):
        self.frontends[i] = self.run(f"f{i}", self.daemons / "gpulet-frontend", "--config", self.folder / f"f{i}.json")

    def start_backend(self, i):
        write(self.folder / f"n{i}.json", {
            "node": f"n{i}", "frontends": self.backend_ports, "model_store": f"store-{i}", "profiles": "profiles",
            "proxy": str(self.daemons / "gpulet-proxy-simulated"), "warm_proxies": 1,
            "devices": [{"type": f"card-{model}", "partitioning": "simulated"} for model in MODELS]})
        self.backends[i] = self.run(f"n{i}", self.daemons / "gpulet-backend", "--config", self.folder / f"n{i}.json")

    def start(self):
        self.etcd_ports = free_port(), free_port()
        self.start_etcd()
        etcd = self.frontends_use(self.etcd_ports[0])
        for model in MODELS:
            write_profile(self.folder / "profiles" / f"card-{model}", model)
            write(self.folder / f"{model}.pt", f"stands for model {model}")
        tensor = {"type": "UINT8", "shape": [1]}
        write(self.folder / "models.json", {"models": [
            {"name": model, "file": f"{model}.pt", "slo_ms": 1000, "rate": 20, "max_batch": 16,
             "inputs": [{"name": "x", **tensor}], "outputs": [{"name": "y", **tensor}]} for model in MODELS]})
        backend_ports = [f"127.0.0.1:{free_port()}" for _ in range(FRONTENDS)]
        for i in range(FRONTENDS):
            write(self.folder / f"f{i}.json", {
                "listen": f"127.0.0.1:{self.clients[i]}", "backend_listen": backend_ports[i],
                "http": f"127.0.0.1:{self.http[i]}", "grpc": "off", "metrics": "off", "models": "models.json",
                "model_format": "any", "profiles": "profiles", **self.more_keys,
                "cluster": {"name": "demo", "member": f"f{i}", "address": f"127.0.0.1:{self.clients[i]}",
                            "peer_listen": f"127.0.0.1:{free_port()}",
                            "etcd": [f"127.0.0.1:{etcd}"], "lease_s": self.lease_s, "settling_s": 1}})
            self.start_frontend(i)
        self.backend_ports = backend_ports
        for node in range(NODES):
            self.start_backend(node)

    def infer(self, frontend, model=None):
        """Whether that frontend answers a request with a result, and how long it took in seconds."""
        _, answered, took = self.infer_at([frontend], model)
        return answered, took

    def infer_at(self, frontends, model=None):
        """Asks the first of them that accepts a connection, for the next model in turn if none is given. Returns (the
        frontend, whether it answered with a result, seconds that it took)."""
        model = model or MODELS[next(self.turns) % len(MODELS)]
        began = time.monotonic()
        for frontend in frontends:
            connection = http.client.HTTPConnection("127.0.0.1", self.http[frontend], timeout=30)
            try:
                connection.connect()
            except OSError:
                continue
            try:
                connection.request("POST", f"/v2/models/{model}/infer", REQUEST)
                answer = connection.getresponse()
                text = answer.read().decode(errors="replace")
                if answer.status != 200:
                    self.failures.append((began, frontend, f"{answer.status}: {text}"))
                return frontend, answer.status == 200, time.monotonic() - began
            except (OSError, http.client.HTTPException) as error:
                self.failures.append((began, frontend, repr(error)))
                return frontend, False, time.monotonic() - began
            finally:
                connection.close()
        return frontends[-1], False, time.monotonic() - began

    def status(self, frontend):
        """The status document of that frontend itself; None if it does not answer."""
        asked = subprocess.run([self.binaries / "gpulet", "status", "--json", "--local", "--target",
                                f"127.0.0.1:{self.clients[frontend]}"], capture_output=True, text=True, check=False)
        return json.loads(asked.stdout) if asked.returncode == 0 else None

    def leader(self):
        """The frontend that leads; None while none does."""
        for i in range(FRONTENDS):
            status = self.frontends[i].poll() is None and self.status(i)
            if status and status["cluster"]["leads"]:
                return i
        return None

    def all_serve(self):
        return all(self.infer(i, model)[0] for i in range(FRONTENDS) for model in MODELS)

    def owned(self, frontend):
        """How many gpulets that frontend owns."""
        status = self.status(frontend)
        return status["cluster"]["owned_gpulets"] if status else 0

    def all_own(self):
        """Every frontend owns a part of the gpulets."""
        return all(self.owned(i) > 0 for i in range(FRONTENDS))

    def proxies(self):
        """The processes of the gpulets."""
        found = set()
        for backend in self.backends:
            for task in Path(f"/proc/{backend.pid}/task").glob("*/children"):
                found |= set(task.read_text(encoding="utf-8").split())
        return found

    def left_behind(self):
        """Processes of this site that still run, once it was left."""
        found = []
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if entry.name.isdigit() and str(self.folder).encode() in (entry / "cmdline").read_bytes():
                    found.append(entry.name)
        return found

    def show_logs(self, to):
        for log in sorted(self.folder.glob("*.log")):
            print(f"--- {log.name}\n" + log.read_text(encoding="utf-8")[-2000:], file=to)


def wait_for(what, patience_s=20):
    """The first value of what() that is true; None if there is none in time."""
    end = time.monotonic() + patience_s
    while time.monotonic() < end:
        if value := what():
            return value
        time.sleep(0.1)
    return None
