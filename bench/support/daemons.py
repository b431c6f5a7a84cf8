"""A frontend and backends as processes on free ports of loopback; they end with the object. Standard library only."""
import json
import signal
import socket
import subprocess
import time

READY_S = 120
END_S = 30


def read(file):
    return json.loads(file.read_text(encoding="utf-8"))


def write(file, document):
    file.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Site:
    """`frontend` and `backends` are the daemons' configurations without addresses; those, and the logs, go to `work`."""

    def __init__(self, programs, work, frontend, backends):
        self.programs, self.work, self.daemons = programs, work, []
        ports = [free_port(), free_port()]
        self.target = f"127.0.0.1:{ports[0]}"
        for_backends = f"127.0.0.1:{ports[1]}"
        self.start("frontend", "gpulet-frontend", {
            "listen": self.target, "backend_listen": for_backends, "http": "off", "grpc": "off", "metrics": "off",
            **frontend})
        for backend in backends:
            self.start(f"backend-{backend['node']}", "gpulet-backend", {
                "frontend": for_backends, "model_store": f"store-{backend['node']}", **backend})

    def start(self, name, program, config):
        write(self.work / f"{name}.json", config)
        with open(self.work / f"{name}.log", "w", encoding="utf-8") as log:
            self.daemons.append(subprocess.Popen(
                [self.programs / program, "--config", self.work / f"{name}.json"],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True))

    def gpulet(self, *arguments):
        return subprocess.run([self.programs / "gpulet", *map(str, arguments), "--target", self.target], check=False,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def status(self):
        answer = self.gpulet("status", "--json")
        return json.loads(answer.stdout) if answer.returncode == 0 else None

    def wait_until_serving(self, schedulable=False):
        """Waits for a serving frontend without a reorganisation; with `schedulable`, for a plan that serves everything."""
        deadline = time.monotonic() + READY_S
        while time.monotonic() < deadline:
            status = self.status()
            frontend = status["frontend"] if status else {"state": "absent"}
            if frontend["state"] == "serving" and not frontend["reorganising"] \
                    and (frontend["schedulable"] or not schedulable):
                return
            time.sleep(0.3)
        raise SystemExit(f"not serving after {READY_S} s; the logs are in {self.work}")

    def stop(self):
        for daemon in self.daemons:
            daemon.send_signal(signal.SIGTERM)
        for daemon in self.daemons:
            try:
                daemon.wait(END_S)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
