"""Runs a frontend and a backend with one GPU on loopback and reads their status. Standard library only."""
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
PERIOD_SECONDS = 2  # in which a frontend looks at its rates: changes are to be seen here within seconds
STOP_SECONDS = 20
SIZES = [20, 40, 60, 80, 100]
Document = dict[str, Any]


def read(file: Path) -> Document:
    return json.loads(file.read_text(encoding="utf-8"))


def write(file: Path, document: Document) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
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

    def run(self, name: str, *arguments: object, timeout: float = 600, log: str = "") -> subprocess.CompletedProcess[str]:
        """Returns the output; messages also go to a log of that name. Kills a process that exceeds its time."""
        command = [str(self.folder / name), *map(str, arguments)]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            output, errors = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)  # it ends its daemons and proxies
            try:
                output, errors = process.communicate(timeout=STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                output, errors = process.communicate()
            errors += f"ended after {timeout:.0f} s, which was all the time it had\n"
        except BaseException:
            process.send_signal(signal.SIGINT)
            process.wait(STOP_SECONDS)
            raise
        if log:
            with open(self.logs / f"{log}.log", "a", encoding="utf-8") as file:
                file.write(f"$ {' '.join(command)}\n{errors}{output if process.returncode else ''}\n")
        return subprocess.CompletedProcess(command, process.returncode, output, errors)

    def exists(self, name: str) -> bool:
        return os.access(self.folder / name, os.X_OK)


@dataclass
class Plan:
    """The configuration of a site."""

    models: list[Document]  # entries of a models file, with their rates
    profiles: Path
    device_type: str
    gpu: str
    partitioning: str
    policy: str = "elastic"
    sizes: list[int] = field(default_factory=lambda: SIZES)


class Site:
    """Daemons on free ports; stopped with this object."""

    def __init__(self, programs: Programs, work: Path, plan: Plan) -> None:
        self.programs = programs
        self.work = work
        self.daemons: list[tuple[str, subprocess.Popen[bytes]]] = []
        ports = [free_port(), free_port()]
        self.target = f"127.0.0.1:{ports[0]}"
        models = write(work / "models.json", {"models": plan.models})
        frontend = write(work / "frontend.json", {
            "listen": self.target, "backend_listen": f"127.0.0.1:{ports[1]}", "http": "off", "grpc": "off", "metrics": "off",
            "models": str(models), "profiles": str(plan.profiles), "policy": plan.policy, "period_s": PERIOD_SECONDS})
        backend = write(work / "backend.json", {
            "node": "n0", "frontend": f"127.0.0.1:{ports[1]}", "model_store": str(work / "store"), "proxy": str(programs.proxy),
            **({"proxy_user": "root"} if os.geteuid() == 0 else {}),
            "devices": [{"type": plan.device_type, "partitioning": plan.partitioning, "gpu": plan.gpu, "sizes": plan.sizes,
                         "max_partitions": len(plan.sizes)}]})
        try:
            self.start("frontend", "gpulet-frontend", frontend)
            self.start("backend", "gpulet-backend", backend)
        except BaseException:
            self.stop()
            raise

    def start(self, name: str, program: str, config: Path) -> None:
        with open(self.work / f"{name}.log", "wb") as log:
            self.daemons.append((name, subprocess.Popen(
                [self.programs.folder / program, "--config", config], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True)))

    def status(self) -> Document | None:
        answer = self.programs.run("gpulet", "status", "--json", "--target", self.target, timeout=10)
        return json.loads(answer.stdout) if answer.returncode == 0 and answer.stdout else None

    def wait_until_serving(self) -> None:
        deadline = time.monotonic() + READY_SECONDS
        while time.monotonic() < deadline:
            for name, daemon in self.daemons:
                if daemon.poll() is not None:
                    raise RuntimeError(f"the {name} ended with {daemon.returncode}; {self.work / name}.log says why")
            status = self.status()
            if status and status["frontend"]["state"] == "serving" and not status["frontend"]["reorganising"]:
                bad = [model for model in status["models"] if model["state"] not in ("ready", "idle")]
                if not bad:
                    return
                if bad[0]["state"] == "unavailable" and time.monotonic() > deadline - READY_SECONDS + UNAVAILABLE_SECONDS:
                    raise RuntimeError(f"{bad[0]['name']} is not served: {bad[0]['reason']}")
            time.sleep(0.2)
        raise RuntimeError(f"not serving after {READY_SECONDS} s; the logs are in {self.work}")

    def workload(self, name: str, models: list[Document]) -> Path:
        return write(self.work / f"{name}.json", {"models": models})

    def load(self, workload: Path, seconds: float, scale: float = 1) -> list[Document]:
        answer = self.programs.run("gpulet", "load", "--workload", workload, "--seconds", seconds, "--rate-scale", scale, "--json",
                                   "--target", self.target, timeout=seconds + 60)
        if not answer.stdout:
            raise RuntimeError(f"gpulet load failed: {answer.stderr.strip()}")
        return json.loads(answer.stdout)["models"]

    def stop(self) -> None:
        for name, daemon in self.daemons:
            daemon.send_signal(signal.SIGTERM)
            try:
                daemon.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                print(f"the {name} did not end in {STOP_SECONDS} s and is killed", flush=True)
                daemon.kill()
                daemon.wait()
        self.daemons = []

    def __enter__(self) -> "Site":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
