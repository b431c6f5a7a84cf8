#!/usr/bin/env python3
"""Checks an installation and the deployment files against the programs and their defaults.

  scripts/check_packaging.py --build DIR    install what is built there into an empty folder and look at it
  scripts/check_packaging.py --packages --build DIR
                                            make the Debian packages of it and hold them against lintian, where that is there
  scripts/check_packaging.py --self-test    show that the checks find what they are for

An installation: every program is there and runs, units start what was installed, the configuration is one that the
programs take, every program and command has its manual page, completions are there. The files: they are YAML that holds together,
ports and probes are those of config/frontend.json, and, where kubectl is there, Kubernetes' own types have every field.
"""
import argparse
import gzip
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
import zipfile
from pathlib import Path

import doc_pages
from check_bundle import contains, notice_problems

ROOT = Path(__file__).resolve().parent.parent
PROGRAMS = ["gpulet", "gpulet-frontend", "gpulet-backend", "gpulet-proxy", "gpulet-proxy-onnx",
            "gpulet-proxy-simulated", "gpulet-kernels"]
COMPLETIONS = ["bash-completion/completions/gpulet", "zsh/vendor-completions/_gpulet",
               "fish/vendor_completions.d/gpulet.fish"]
PORT_NAMES = {"listen": "clients", "backend_listen": "backends", "http": "http", "grpc": "grpc", "metrics": "metrics"}
# Of a single frontend, whose pod is ready before it has models: an installation that waits for it ends.
PROBES = {"startupProbe": "/v2/health/live", "livenessProbe": "/v2/health/live", "readinessProbe": "/v2/health/live"}
# What Pod Security's level "restricted" asks of pods and containers (volumes: those of the level that gpulet uses).
RESTRICTED_VOLUMES = {"configMap", "emptyDir", "persistentVolumeClaim", "projected", "secret"}
# The default of drain_timeout_s, and 30 s to end.
LEAST_GRACE_S = 40
SEVERITIES = ("critical", "warning", "info")
SKIPPED = 77


def ports_of(config):
    """{name: port} of the contents of a frontend.json."""
    return {name: int(config[key].rsplit(":", 1)[1]) for key, name in PORT_NAMES.items()}


def default_ports():
    """The ports of the configuration file that the documentation uses."""
    return json_ports(ROOT / "config/frontend.json")


# ---- the installation

def run(words, **more):
    """Runs a command; its output and its errors are one text."""
    return subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          check=False, **more)


def kubectl(arguments, document=""):
    """Runs kubectl, whose warnings are kept out of the document that it prints."""
    return subprocess.run(["kubectl", *arguments], input=document, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          check=False)


def unit_problems(text, root):
    """Every program that a unit starts must exist below `root`."""
    command = re.search(r"^ExecStart=(.*)$", text, re.M)
    if not command:
        yield "has no ExecStart"
        return
    for word in command.group(1).split():
        if word.startswith("/") and not (root / word[1:]).is_file():
            yield f"starts with {word}, which is not installed"
    if re.search(r"@\w+@", text):
        yield "holds a place that was not filled in"


def make_served_files(program, models, folder):
    """Puts there what configuration files name below /var/lib/gpulet. Returns what is wrong with it, or nothing."""
    for name in ("models", "profiles", "store"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    for model in models:
        # A TorchScript file, as far as the check looks.
        with zipfile.ZipFile(folder / "models" / Path(model["file"]).name, "w") as archive:
            for member in ("data.pkl", "constants.pkl"):
                archive.writestr(f"model/{member}", "")
    latencies = folder / "latency.csv"
    latencies.write_text("model,batch,partition,latency_ms\n" + "".join(f"{model['name']},1,100,0.1\n" for model in models),
                         encoding="utf-8")
    imported = run([program, "profile", "import", "--name", "cpu-core", "--latency", latencies, "--out", folder / "profiles"])
    return "" if imported.returncode == 0 else f"profile import: {imported.stdout.strip()}"


def configuration_problems(root):
    """The programs must accept the installed files, with the files that these name in place."""
    program = root / "usr/bin/gpulet"
    models = json.loads((root / "etc/gpulet/models.json").read_text(encoding="utf-8"))["models"]
    problem = make_served_files(program, models, root / "var/lib/gpulet")
    if problem:
        yield problem
    for file in sorted((root / "etc/gpulet").glob("*.json")):
        moved = root / "etc" / file.name
        moved.write_text(file.read_text(encoding="utf-8").replace("/var/lib/gpulet", str(root / "var/lib/gpulet")),
                         encoding="utf-8")
    for name in ("models.json", "frontend.json", "backend.json"):
        checked = run([program, "config", "check", "--elsewhere", root / "etc" / name])
        if checked.returncode != 0:
            yield f"etc/gpulet/{name}: {checked.stdout.strip()}"


def installed_problems(build, root):
    installed = run(["cmake", "--install", build, "--prefix", "/usr"], env={**os.environ, "DESTDIR": str(root)})
    if installed.returncode != 0:
        yield "cmake --install: " + installed.stdout[-2000:]
        return
    # The licence of the page's parts is in the page itself, too.
    frontend = root / "usr/bin/gpulet-frontend"
    if contains(frontend, b"/assets/main-") and not contains(frontend, b"Copyright (c) 2022 Leon Sorokin"):
        yield "gpulet-frontend: its dashboard has uPlot without its licence"
    for name in PROGRAMS:
        if not os.access(root / "usr/bin" / name, os.X_OK):
            yield f"usr/bin/{name}: not installed, or no program"
    for program in sorted((root / "usr/bin").iterdir()):
        if not any((root / f"usr/share/man/man{section}/{program.name}.{section}.gz").is_file() for section in (1, 8)):
            yield f"{program.name}: has no manual page"
    for name in PROGRAMS[:3]:
        if run([root / "usr/bin" / name, "--help"]).returncode != 0:
            yield f"usr/bin/{name} --help fails"
    for name in ("gpulet-frontend", "gpulet-backend"):
        unit = root / f"lib/systemd/system/{name}.service"
        if not unit.is_file():
            yield f"{unit.name}: not installed"
            continue
        for problem in unit_problems(unit.read_text(encoding="utf-8"), root):
            yield f"{unit.name}: {problem}"
    help_text = run([root / "usr/bin/gpulet", "--help"]).stdout
    for command in re.findall(r"^  ([a-z]+) {3,}", help_text.partition("Subcommands:")[2], re.M):
        if not (root / f"usr/share/man/man1/gpulet-{command}.1.gz").is_file():
            yield f"gpulet {command}: has no manual page"
    for name in COMPLETIONS:
        if not (root / "usr/share" / name).is_file():
            yield f"usr/share/{name}: not installed"
    yield from configuration_problems(root)
    for package in ("gpulet", "gpulet-backend"):
        if not (root / f"usr/share/doc/{package}/changelog.gz").is_file():
            yield f"{package}: has no changelog"
        notices = root / f"usr/share/doc/{package}/THIRD_PARTY.gz"
        if not notices.is_file():
            yield f"{package}: has no licences of others' software"
        else:
            yield from notice_problems(gzip.decompress(notices.read_bytes()).decode(), contains(root / "usr/bin/gpulet-frontend", b"/assets/main-"),
                                       any((root / "usr").glob("lib/**/libonnxruntime.so.1")))
        for name in (ROOT / f"packaging/debian/{package}/conffiles").read_text(encoding="utf-8").split():
            if not (root / name[1:]).is_file():
                yield f"{package}: the conffile {name} is not installed"


def changelog_problems(text, version):
    """The newest entry must have the project's version, after which CPack names the packages."""
    newest = re.match(r"gpulet \(([^)]*)\) ", text)
    if not newest or newest.group(1) != version:
        yield f"packaging/debian/changelog: its newest version is {newest and newest.group(1)}, and the project's {version}"


def script_problems(text):
    """A maintainer script must use deb-systemd-helper and deb-systemd-invoke, which respect the machine's policies."""
    for line in text.splitlines():
        if re.match(r"\s*systemctl\b", line) and "daemon-reload" not in line:
            yield f"calls systemctl by hand: {line.strip()}"


def cached(build, name):
    match = re.search(rf"^{name}:\w+=(.*)$", (build / "CMakeCache.txt").read_text(encoding="utf-8"), re.M)
    return match.group(1) if match else ""


def lintian_errors(text):
    """The errors in lintian's output, one per line: "E: package: tag ..."."""
    return [line for line in text.splitlines() if line.startswith("E: ")]


def package_problems(build):
    """Problems of the built Debian packages."""
    with tempfile.TemporaryDirectory() as folder:
        made = run(["cpack", "--config", build / "CPackConfig.cmake", "-B", folder])
        packages = sorted(Path(folder).glob("*.deb"))
        if made.returncode != 0 or len(packages) != 2:
            yield f"cpack made {len(packages)} packages: {made.stdout[-2000:]}"
            return
        told = run(["lintian", "--allow-root", *packages]).stdout
        errors = lintian_errors(told)
        print("\n".join(line for line in told.splitlines() if line not in errors))
        yield from errors


# ---- the deployment files

def json_ports(file):
    return ports_of(json.loads(file.read_text(encoding="utf-8")))


def port_problems(where, found, wanted):
    for name in wanted:
        if found.get(name) != wanted[name]:
            yield f"{where}: {name} is at {found.get(name)}, and at {wanted[name]} in config/frontend.json"


def deployment_problems(documents, ports):
    """Checks the manifests of frontend and backend together: containers, probes, services."""
    by_kind = {}
    for document in documents:
        by_kind.setdefault(document["kind"], {})[document["metadata"]["name"]] = document
    container = by_kind["Deployment"]["gpulet-frontend"]["spec"]["template"]["spec"]["containers"][0]
    yield from port_problems("Deployment", {port["name"]: port["containerPort"] for port in container["ports"]}, ports)
    for probe, path in PROBES.items():
        asked = container.get(probe, {}).get("httpGet", {})
        if (asked.get("path"), asked.get("port")) != (path, "http"):
            yield f"Deployment: {probe} asks {asked.get('path')} at {asked.get('port')}, not {path} at http"
    services = by_kind["Service"]
    served = {port["name"]: port["port"] for service in services.values() for port in service["spec"]["ports"]}
    yield from port_problems("Services", served, ports)
    for service in services.values():
        for port in service["spec"]["ports"]:
            if port["targetPort"] not in ports:
                yield f"Service {service['metadata']['name']}: no container has the port {port['targetPort']}"
    labels = by_kind["Deployment"]["gpulet-frontend"]["spec"]["template"]["metadata"]["labels"]
    for service in services.values():
        if not service["spec"]["selector"].items() <= labels.items():
            yield f"Service {service['metadata']['name']}: selects no pod of the frontend"


def security_problems(document):
    """A pod must keep Pod Security's level "restricted", and have the time to drain."""
    where = f"{document['kind']} {document['metadata']['name']}"
    pod = document["spec"]["template"]["spec"]
    for key in ("hostIPC", "hostPID", "hostNetwork"):
        if pod.get(key):
            yield f"{where}: {key} is not restricted"
    for volume in pod.get("volumes", []):
        for kind in sorted(set(volume) - {"name"} - RESTRICTED_VOLUMES):
            yield f"{where}: the volume {volume['name']} is a {kind}, which is not restricted"
    of_pod = pod.get("securityContext", {})
    for container in [*pod.get("initContainers", []), *pod["containers"]]:
        context = {**of_pod, **container.get("securityContext", {})}
        kept = (context.get("runAsNonRoot"), context.get("allowPrivilegeEscalation"), context.get("capabilities", {}).get("drop"),
                context.get("seccompProfile", {}).get("type"), context.get("privileged", False))
        if kept != (True, False, ["ALL"], "RuntimeDefault", False):
            yield f"{where}: the container {container['name']} is not restricted"
    if not document["metadata"]["name"].endswith("-etcd") and pod.get("terminationGracePeriodSeconds", 30) < LEAST_GRACE_S:
        yield f"{where}: terminationGracePeriodSeconds is less than {LEAST_GRACE_S}, the drain and 30 s"


def missing_fields(ours, theirs, place=""):
    """The fields of `ours` that `theirs` lacks: a conversion drops fields unknown to Kubernetes."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for key, value in ours.items():
            if key not in theirs:
                yield f"{place}/{key}"
            else:
                yield from missing_fields(value, theirs[key], f"{place}/{key}")
    elif isinstance(ours, list) and isinstance(theirs, list):
        if len(ours) > len(theirs):
            yield f"{place}: {len(ours) - len(theirs)} entries"
        for index, (value, other) in enumerate(zip(ours, theirs)):
            yield from missing_fields(value, other, f"{place}/{index}")


def type_problems(document):
    """Converts a workload to Kubernetes' own type, which must have every field."""
    typed = kubectl(["set", "image", "--local", "-f", "-", "-o", "json", "*=checked"], json.dumps(document))
    if typed.returncode != 0:
        yield typed.stderr.strip()
        return
    for field in missing_fields(document, json.loads(typed.stdout)):
        yield f"Kubernetes knows no {field}"


def kubectl_problems(yaml):
    """Builds every overlay with kustomize and converts the workloads to Kubernetes' own types."""
    for overlay in ("base", "cluster", "gpu", "monitoring"):
        built = kubectl(["kustomize", ROOT / "packaging/kubernetes" / overlay])
        if built.returncode != 0:
            yield f"kubernetes/{overlay}: {built.stderr.strip()}"
            continue
        for document in yaml.safe_load_all(built.stdout):
            if document["kind"] not in ("Deployment", "DaemonSet", "StatefulSet"):
                continue
            for problem in [*type_problems(document), *security_problems(document)]:
                yield f"kubernetes/{overlay}, {document['kind']}: {problem}"


def compose_problems(compose, ports):
    services = compose["services"]
    published = {int(port.rsplit(":", 1)[1]): int(port.split(":")[-2]) for port in services["frontend"]["ports"]}
    if published != {port: port for port in ports.values()}:
        yield f"compose.yml: the frontend's ports are {sorted(published)}, not {sorted(ports.values())}"
    backends = [name for name in services if name.startswith("backend")]
    if len(backends) != 2:
        yield f"compose.yml: has {len(backends)} backends, not 2"
    yield from volume_problems("compose.yml", compose)


def volume_problems(file, compose):
    for name, service in compose["services"].items():
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            if not source.startswith("."):
                if source not in compose["volumes"]:
                    yield f"{file}: {name} mounts the volume {source}, which is not declared"
            elif source != "../profiles/local" and not (ROOT / "docker" / source).exists():
                yield f"{file}: {name} mounts {source}, which is not there"


def gpu_compose_problems(compose):
    """The backend has a GPU, the programs of MPS, and memory that MPS shares with its clients; it has no more rights than without."""
    yield from volume_problems("compose-gpu.yml", compose)
    backend = compose["services"]["backend"]
    devices = backend.get("deploy", {}).get("resources", {}).get("reservations", {}).get("devices", [])
    if not any(device.get("driver") == "nvidia" and {"gpu", "compute", "utility"} <= set(device["capabilities"]) for device in devices):
        yield f"compose-gpu.yml: the backend gets no GPU with CUDA and NVML: {devices}"
    if not backend.get("shm_size"):
        yield "compose-gpu.yml: the backend has no shm_size"
    if backend.get("privileged") or backend.get("ipc") == "host" or backend.get("pid") == "host" or backend.get("cap_drop") != ["ALL"]:
        yield "compose-gpu.yml: the backend has rights that it does not need"


def cluster_compose_problems(compose):
    """Every frontend of the cluster has a name of its own, and the backends connect to all of them."""
    services = compose["services"]
    frontends = {name: service for name, service in services.items() if name.startswith("frontend")}
    names = [service["command"][service["command"].index("--member") + 1] for service in frontends.values()]
    if len(set(names)) != len(frontends):
        yield f"compose-cluster.yml: two frontends have one name: {names}"
    listed = json.loads((ROOT / "docker/compose/backend-of-cluster.json").read_text(encoding="utf-8"))["frontends"]
    if listed != [f"{name}:7001" for name in frontends]:
        yield f"backend-of-cluster.json: connects to {listed}, not to all of {sorted(frontends)}"
    published = [port.rsplit(":", 1)[0] for service in services.values() for port in service.get("ports", [])]
    if len(set(published)) != len(published):
        yield "compose-cluster.yml: publishes a port twice"


def alert_problems(rules, sections):
    """Every alert needs a severity, texts, and a runbook. `sections(page)`: the anchors of a page, none if it is not there."""
    for rule in (rule for group in rules["groups"] for rule in group["rules"] if "alert" in rule):
        where, annotations = f"the alert {rule['alert']}", rule.get("annotations", {})
        if rule.get("labels", {}).get("severity") not in SEVERITIES:
            yield f"{where}: has no severity"
        for key in ("summary", "description", "runbook_url"):
            if not annotations.get(key):
                yield f"{where}: has no {key}"
        page, _, anchor = annotations.get("runbook_url", "").partition("#")
        if page and anchor not in sections(page):
            yield f"{where}: its runbook is not in {page}"


def sections_of(page):
    file = ROOT / page
    return {doc_pages.slug(heading) for heading in doc_pages.headings_of(file.read_text(encoding="utf-8"))} if file.is_file() else set()


def rules_problems(yaml):
    file = ROOT / "docker/gpulet-rules.yml"
    yield from (f"{file.name}: {problem}" for problem in alert_problems(yaml.safe_load(file.read_text(encoding="utf-8")), sections_of))
    if shutil.which("promtool"):
        checked = run(["promtool", "check", "rules", file])
        if checked.returncode != 0:
            yield f"promtool: {checked.stdout.strip()}"


def files_problems(yaml):
    ports = default_ports()
    documents = {}
    for file in sorted([*(ROOT / "packaging/kubernetes").rglob("*.yaml"), *(ROOT / "docker").rglob("*.yml")]):
        try:
            documents[file.relative_to(ROOT).as_posix()] = list(yaml.safe_load_all(file.read_text(encoding="utf-8")))
        except yaml.YAMLError as error:
            yield f"{file}: {error}"
            return
    base = "packaging/kubernetes/base"
    yield from deployment_problems([one for name in ("frontend", "backend") for one in documents[f"{base}/{name}.yaml"]],
                                   ports)
    for name in (f"{base}/frontend.json", "packaging/kubernetes/cluster/frontend.json", "docker/compose/frontend.json",
                 "docker/compose/frontend-of-cluster.json", "packaging/etc/frontend.json"):
        yield from port_problems(name, json_ports(ROOT / name), ports)
    yield from compose_problems(documents["docker/compose.yml"][0], ports)
    yield from cluster_compose_problems(documents["docker/compose-cluster.yml"][0])
    yield from gpu_compose_problems(documents["docker/compose-gpu.yml"][0])
    exposed = re.search(r"^EXPOSE (.*)$", (ROOT / "docker/Dockerfile").read_text(encoding="utf-8"), re.M)
    if not exposed or sorted(map(int, exposed.group(1).split())) != sorted(ports.values()):
        yield f"docker/Dockerfile: exposes {exposed and exposed.group(1)}, not {sorted(ports.values())}"
    if shutil.which("kubectl"):
        yield from kubectl_problems(yaml)


class SelfTest(unittest.TestCase):
    def test_a_backend_without_a_gpu_or_with_the_rights_of_the_host_is_found(self):
        def compose(**more):
            device = {"driver": "nvidia", "capabilities": ["gpu", "compute", "utility"]}
            backend = {"deploy": {"resources": {"reservations": {"devices": [device]}}}, "shm_size": "1gb", "cap_drop": ["ALL"]}
            return {"services": {"backend": {**backend, **more}}}

        self.assertEqual(list(gpu_compose_problems(compose())), [])
        for wrong in ({"deploy": {}}, {"shm_size": ""}, {"ipc": "host"}, {"cap_drop": []}):
            self.assertEqual(len(list(gpu_compose_problems(compose(**wrong)))), 1, wrong)

    def test_frontends_of_a_cluster_with_one_name_are_found(self):
        def frontend(name, port):
            return {"command": ["x", "--member", name], "ports": [f"127.0.0.1:{port}:7000"]}

        good = {f"frontend-{i}": frontend(f"f{i}", i) for i in range(3)}
        self.assertEqual(list(cluster_compose_problems({"services": good})), [])
        bad = good | {"frontend-2": frontend("f1", 1)}
        self.assertEqual(len(list(cluster_compose_problems({"services": bad}))), 2)

    def test_a_unit_that_starts_what_is_not_there_is_found(self):
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            (root / "usr/bin").mkdir(parents=True)
            (root / "usr/bin/a").touch()
            self.assertEqual(list(unit_problems("ExecStart=/usr/bin/a --config x\n", root)), [])
            self.assertEqual(len(list(unit_problems("ExecStart=/usr/bin/a --config /etc/b\n", root))), 1)
            self.assertEqual(len(list(unit_problems("User=x\n", root))), 1)
            self.assertEqual(len(list(unit_problems("ExecStart=@bindir@/a\n", root))), 1)

    def test_an_old_changelog_is_found(self):
        self.assertEqual(list(changelog_problems("gpulet (1.2) unstable; urgency=low\n", "1.2")), [])
        self.assertEqual(len(list(changelog_problems("gpulet (1.1) unstable; urgency=low\n", "1.2"))), 1)
        self.assertEqual(len(list(changelog_problems("", "1.2"))), 1)

    def test_units_handled_by_hand_are_found(self):
        self.assertEqual(list(script_problems("  systemctl --system daemon-reload\n deb-systemd-invoke stop x\n")), [])
        self.assertEqual(len(list(script_problems("if x; then\n  systemctl stop x\nfi\n"))), 1)

    def test_errors_of_lintian_are_told_from_warnings(self):
        self.assertEqual(lintian_errors("W: gpulet: odd\nE: gpulet: bad\nN: 0 hints overridden\n"), ["E: gpulet: bad"])

    def test_another_port_is_found(self):
        self.assertEqual(list(port_problems("x", {"http": 8000}, {"http": 8000})), [])
        self.assertEqual(len(list(port_problems("x", {"http": 80}, {"http": 8000, "grpc": 8001}))), 2)

    def test_pods_that_are_not_restricted_are_found(self):
        pod = {"terminationGracePeriodSeconds": 60, "volumes": [{"name": "a", "emptyDir": {}}],
               "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
               "containers": [{"name": "c", "securityContext": {"allowPrivilegeEscalation": False,
                                                                "capabilities": {"drop": ["ALL"]}}}]}
        document = {"kind": "DaemonSet", "metadata": {"name": "b"}, "spec": {"template": {"spec": pod}}}
        self.assertEqual(list(security_problems(document)), [])
        pod.update(hostIPC=True, terminationGracePeriodSeconds=30, initContainers=[{"name": "i"}])
        pod["volumes"].append({"name": "m", "hostPath": {"path": "/tmp"}})
        self.assertEqual(len(list(security_problems(document))), 4)

    def test_alerts_without_severity_and_runbook_are_found(self):
        rule = {"alert": "A", "labels": {"severity": "warning"},
                "annotations": {"summary": "s", "description": "d", "runbook_url": "p.md#a"}}
        rules = {"groups": [{"rules": [rule, {"record": "r"}]}]}
        self.assertEqual(list(alert_problems(rules, lambda page: {"a"})), [])
        self.assertEqual(len(list(alert_problems(rules, lambda page: set()))), 1)
        rule.update(labels={"severity": "page"}, annotations={})
        self.assertEqual(len(list(alert_problems(rules, lambda page: {"a"}))), 4)

    def test_fields_that_no_type_knows_are_found(self):
        ours = {"spec": {"replica": 1, "containers": [{"name": "a"}]}}
        self.assertEqual(list(missing_fields(ours, {"spec": {"containers": [{"name": "a", "x": 1}]}})), ["/spec/replica"])

    def test_a_compose_file_that_publishes_other_ports_is_found(self):
        compose = {"services": {"frontend": {"ports": ["127.0.0.1:7000:7000"]}, "backend-a": {}, "backend-b": {}}}
        self.assertEqual(list(compose_problems(compose, {"clients": 7000})), [])
        self.assertEqual(len(list(compose_problems(compose, {"clients": 7000, "http": 8000}))), 1)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path)
    parser.add_argument("--packages", action="store_true")
    parser.add_argument("--self-test", action="store_true")
    options = parser.parse_args()
    if options.self_test:
        return 0 if unittest.main(argv=[sys.argv[0]], exit=False).result.wasSuccessful() else 1
    if options.packages:
        if not options.build:
            parser.error("--packages needs --build")
        for tool in ("cpack", "lintian", "dpkg-deb"):
            if not shutil.which(tool):
                print(f"check_packaging: no {tool}; skipped")
                return SKIPPED
        problems = list(package_problems(options.build.resolve()))
        for problem in problems:
            print(problem)
        print(f"check_packaging: {len(problems)} problems of the packages")
        return 1 if problems else 0
    try:
        import yaml
    except ImportError:
        print("check_packaging: no PyYAML; skipped (Debian: python3-yaml)")
        return SKIPPED
    problems = list(files_problems(yaml)) + list(rules_problems(yaml))
    if options.build:
        problems += changelog_problems((ROOT / "packaging/debian/changelog").read_text(encoding="utf-8"),
                                       cached(options.build, "CMAKE_PROJECT_VERSION"))
        for script in sorted((ROOT / "packaging/debian").glob("*/p*")):
            problems += [f"{script.relative_to(ROOT)}: {one}" for one in script_problems(script.read_text(encoding="utf-8"))]
        with tempfile.TemporaryDirectory() as folder:
            problems += installed_problems(options.build.resolve(), Path(folder))
    for problem in problems:
        print(problem)
    print(f"check_packaging: {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
