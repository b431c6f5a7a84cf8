"""Runs programs of gpulet, and a frontend and a backend with one device on loopback. Standard library only."""
from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

READY_SECONDS = 60
UNAVAILABLE_SECONDS = 10
STOP_SECONDS = 20
SIZES = [20, 40, 60, 80, 100]
Document = dict[str, Any]


def read(file: Path) -> Document:
    return json.loads(file.read_text(encoding="utf-8"))


def write(file: Path, document: object) -> Path:
    """Replaces the file as a whole, so that a run that is cut leaves no half of it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    new = file.with_name(f".{file.name}.new")
    new.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    new.replace(file)
    return file


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@dataclass
class Programs:
    """The built programs and the folder of their output."""

    folder: Path
    proxy: Path
    logs: Path
    running: list[subprocess.Popen[Any]] = field(default_factory=list)

    def start(self, command: list[object], **options: Any) -> subprocess.Popen[Any]:
        """Starts a process, with a group of its own, that kill_all() ends, too."""
        process = subprocess.Popen([str(word) for word in command], stdin=subprocess.DEVNULL, start_new_session=True, **options)
        self.running = [one for one in self.running if one.poll() is None] + [process]
        return process

    def kill_all(self) -> None:
        """Ends all processes that still run. Backends and measurements end their proxies and MPS on a signal."""
        running = [one for one in self.running if one.poll() is None]
        for process in running:
            process.send_signal(signal.SIGINT)
        deadline = time.monotonic() + STOP_SECONDS
        for process in running:
            try:
                process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
            kill_group(process)

    def run(self, name: str, *arguments: object, timeout: float = 600, log: str = "") -> subprocess.CompletedProcess[str]:
        """Returns the output; messages also go to a log of that name. Ends a process that exceeds its time."""
        return self.run_command([self.folder / name, *arguments], timeout, log)

    def run_command(self, command: list[object], timeout: float, log: str = "") -> subprocess.CompletedProcess[str]:
        process = self.start(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            output, errors = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            output, errors = interrupted(process)
            errors += f"ended after {timeout:.0f} s, which was all the time it had\n"
        except BaseException:
            interrupted(process)
            raise
        words = [str(word) for word in command]
        if log:
            with open(self.logs / f"{log}.log", "a", encoding="utf-8") as file:
                file.write(f"$ {' '.join(words)}\n{errors}{output if process.returncode else ''}\n")
        return subprocess.CompletedProcess(words, process.returncode, output, errors)

    def exists(self, name: str) -> bool:
        return os.access(self.folder / name, os.X_OK)


def kill_group(process: subprocess.Popen[Any]) -> None:
    """Ends what the process started and left."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def interrupted(process: subprocess.Popen[str]) -> tuple[str, str]:
    """Ends the process, first by a signal at which it ends its own daemons and proxies."""
    process.send_signal(signal.SIGINT)
    deadline = time.monotonic() + STOP_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)
    kill_group(process)  # also those that hold its output open
    return process.communicate()


@dataclass
class Plan:
    """The configuration of a site."""

    models: list[Document]  # entries of a models file, with their rates
    profiles: Path
    device: Document  # without sizes
    policy: str = "elastic"
    sizes: list[int] = field(default_factory=lambda: SIZES)
    period_s: float = 2  # in which a frontend looks at its rates: changes are to be seen here within seconds
    device_profiles: Path | None = None  # that a simulated device takes its times from
    parking: Document | None = None  # of the backend


class Site:
    """Daemons on free ports; stopped with this object."""

    def __init__(self, programs: Programs, work: Path, plan: Plan) -> None:
        self.programs = programs
        self.work = work
        self.daemons: dict[str, subprocess.Popen[Any]] = {}
        ports = [free_port(), free_port()]
        self.target = f"127.0.0.1:{ports[0]}"
        self.for_backends = f"127.0.0.1:{ports[1]}"
        backend = write(work / "backend.json", {
            "node": "n0", "frontend": self.for_backends, "model_store": str(work / "store"), "proxy": str(programs.proxy),
            **({"proxy_user": "root"} if os.geteuid() == 0 else {}),
            **({"profiles": str(plan.device_profiles)} if plan.device_profiles else {}),
            **({"parking": plan.parking} if plan.parking else {}),
            "devices": [{**plan.device, "sizes": plan.sizes, "max_partitions": len(plan.sizes)}]})
        try:
            self.start_frontend(plan)
            self.start("backend", "gpulet-backend", backend)
        except BaseException:
            self.stop()
            raise

    def start_frontend(self, plan: Plan) -> None:
        models = write(self.work / "models.json", {"models": plan.models})
        frontend = write(self.work / "frontend.json", {
            "listen": self.target, "backend_listen": self.for_backends, "http": "off", "grpc": "off", "metrics": "off",
            "models": str(models), "profiles": str(plan.profiles), "policy": plan.policy, "period_s": plan.period_s,
            "drain_grace_s": 0})
        self.start("frontend", "gpulet-frontend", frontend)

    def replan(self, plan: Plan) -> None:
        """Serves by another policy: a new frontend takes over the gpulets of the backend, so that no model is loaded again."""
        self.stop_one("frontend")
        self.start_frontend(plan)

    def start(self, name: str, program: str, config: Path) -> None:
        with open(self.work / f"{name}.log", "ab") as log:
            self.daemons[name] = self.programs.start([self.programs.folder / program, "--config", config], stdout=log, stderr=log)

    def status(self) -> Document | None:
        answer = self.programs.run("gpulet", "status", "--json", "--target", self.target, timeout=10)
        return json.loads(answer.stdout) if answer.returncode == 0 and answer.stdout else None

    def wait_until_serving(self, timeout: float = READY_SECONDS) -> None:
        begun = time.monotonic()
        while time.monotonic() < begun + timeout:
            for name, daemon in self.daemons.items():
                if daemon.poll() is not None:
                    raise RuntimeError(f"the {name} ended with {daemon.returncode}; {self.work / name}.log says why")
            status = self.status()
            # A frontend that takes over gpulets serves by the plan before, as epoch 0, until it has a plan of its own.
            frontend = status["frontend"] if status else {}
            if frontend.get("state") == "serving" and frontend["epoch"] > 0 and not frontend["reorganising"]:
                bad = [model for model in status["models"] if model["state"] not in ("ready", "idle")]
                if not bad:
                    return
                if bad[0]["state"] == "unavailable" and time.monotonic() > begun + UNAVAILABLE_SECONDS:
                    raise RuntimeError(f"{bad[0]['name']} is not served: {bad[0]['reason']}")
            time.sleep(0.1)
        raise RuntimeError(f"not serving after {timeout:.0f} s; the logs are in {self.work}")

    def workload(self, name: str, models: list[Document]) -> Path:
        return write(self.work / f"{name}.json", {"models": models})

    def load_command(self, workload: Path, seconds: float, scale: float = 1) -> list[object]:
        return ["load", "--workload", workload, "--seconds", seconds, "--rate-scale", scale, "--json", "--target", self.target]

    def load(self, workload: Path, seconds: float, scale: float = 1) -> list[Document]:
        answer = self.programs.run("gpulet", *self.load_command(workload, seconds, scale), timeout=seconds + 30)
        if not answer.stdout:
            raise RuntimeError(f"gpulet load failed: {answer.stderr.strip()}")
        return json.loads(answer.stdout)["models"]

    def stop_one(self, name: str) -> None:
        daemon = self.daemons.pop(name)
        daemon.send_signal(signal.SIGTERM)
        try:
            daemon.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            print(f"the {name} did not end in {STOP_SECONDS} s and is killed", flush=True)
            daemon.kill()
            daemon.wait()
        kill_group(daemon)

    def stop(self) -> None:
        for name in list(self.daemons):
            self.stop_one(name)

    def __enter__(self) -> "Site":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
