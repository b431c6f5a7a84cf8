#!/usr/bin/env python3
"""Checks the Helm chart, packaging/helm/gpulet, against the manifests for kustomize and the programs.

  scripts/check_chart.py [--build DIR]  render the chart and look at the result; with a build, `gpulet config check` reads the
                                        configuration files in it
  scripts/check_chart.py --self-test    show that the checks find what they are for

Helm renders the chart where it is installed, and tests/packaging/helm/render.go where Go is (scripts/setup --for dev). Each
file of tests/packaging/helm/values is one set of values. Every set must refer only to what it has: volumes, files below them,
services. Where kubectl is there, Kubernetes' own types have every field, and the sets that are named after an overlay of
packaging/kubernetes give the same objects as that overlay.
"""
import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from check_packaging import (ROOT, SKIPPED, default_ports, deployment_problems, kubectl, make_served_files, port_problems,
                             ports_of, run, security_problems, type_problems)

CHART = ROOT / "packaging/helm/gpulet"
CHECKS = ROOT / "tests/packaging/helm"
GO_LIBRARIES = Path("/usr/share/gocode")
WORKLOADS = ("Deployment", "DaemonSet", "StatefulSet")
# Values that the chart must refuse.
REFUSED = {
    "an unknown key": {"frontent": {}},
    "a number in place of a text": {"fullnameOverride": 7},
    "several frontends without etcd": {"frontend": {"replicas": 2}},
    "a key of cluster without etcd": {"frontend": {"config": {"cluster": {"lease_s": 3}}}},
    "two etcds": {"etcd": {"enabled": True, "endpoints": ["e:2379"]}},
    "an etcd without a port": {"etcd": {"endpoints": ["https://e"]}},
    "TLS to the etcd of the chart": {"etcd": {"enabled": True, "tls": {"secret": "s"}}},
    "a user without a password": {"etcd": {"endpoints": ["e:2379"], "user": "u"}},
    "a certificate without a Secret": {"etcd": {"endpoints": ["e:2379"], "tls": {"clientCertificate": True}}},
    "TLS at one end": {"backend": {"tls": {"secret": "s"}}},
    "a port of its own": {"frontend": {"config": {"listen": "0.0.0.0:1"}}},
    "a store of its own": {"backend": {"config": {"model_store": "/tmp"}}},
    "an unknown kind of token": {"frontend": {"tokens": {"secret": "s", "files": ["root"]}}},
    "a size of /dev/shm that is none": {"backend": {"gpu": {"sharedMemory": "much"}}},
    "no GPU among the devices": {"backend": {"gpu": {"enabled": True}}},
    "the folder of an MPS daemon of the node": {"backend": {"gpu": {"mps": {"pipeDirectory": "/tmp/nvidia-mps"}}}},
    "a readiness that is none": {"frontend": {"readiness": "ready"}},
    "too little time to drain": {"frontend": {"terminationGracePeriodSeconds": 10}},
    "a volume without a name": {"backend": {"extraVolumes": [{"emptyDir": {}}]}},
    "a GPU for pods without one": {"backend": {"devices": [{"type": "h200", "partitioning": "green"}]}},
}


# ---- rendering

def renderer(folder):
    """The words before a list of files of values, or nothing where no program can render the chart."""
    if shutil.which("helm"):
        return lambda files: ["helm", "template", "gpulet", CHART, "--namespace", "gpulet",
                              *(word for file in files for word in ("--values", file))]
    if not shutil.which("go") or not (GO_LIBRARIES / "src/github.com/Masterminds/sprig").is_dir():
        return None
    program = folder / "render"
    built = run(["go", "build", "-o", program, CHECKS / "render.go"],
                env={"GOCACHE": str(folder / "cache"), **os.environ, "GO111MODULE": "off", "GOPATH": str(GO_LIBRARIES)})
    if built.returncode != 0:
        raise SystemExit(f"check_chart: {built.stdout}")
    return lambda files: [program, CHART, "gpulet", *files]


def rendered(words):
    """The text, or an error."""
    result = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                            check=False)
    return (result.stdout, "") if result.returncode == 0 else ("", result.stderr.strip() or "fails")


# ---- one set of values

def pod_of(document):
    return document["spec"]["template"]["spec"]


def configurations(documents):
    """{name: value} of the JSON files in ConfigMaps."""
    return {name: json.loads(text) for document in documents if document["kind"] == "ConfigMap"
            for name, text in document["data"].items()}


def paths_in(value):
    if isinstance(value, dict):
        for inner in value.values():
            yield from paths_in(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from paths_in(inner)
    elif isinstance(value, str) and value.startswith("/"):
        yield value


def is_below(path, folders):
    return any(path.startswith(folder + "/") for folder in folders)


def mount_problems(document, configuration):
    """Every mounted volume must be there, and every path of the configuration below a mount."""
    where = f"{document['kind']} {document['metadata']['name']}"
    container = pod_of(document)["containers"][0]
    volumes = [volume["name"] for volume in pod_of(document)["volumes"]]
    mounts = {mount["name"]: mount for mount in container["volumeMounts"]}
    if sorted(volumes) != sorted(mounts):
        yield f"{where}: has the volumes {sorted(volumes)} and mounts {sorted(mounts)}"
    folders = [mount["mountPath"] for mount in mounts.values()]
    for path in paths_in(configuration):
        if not is_below(path, folders):
            yield f"{where}: the configuration names {path}, which is on no volume"
    # An emptyDir is writable for all users, and a model store that is so is refused: it must be a folder below.
    for store in (configuration.get("model_store"), configuration.get("cluster", {}).get("model_store")):
        writable = [mount["mountPath"] for mount in mounts.values() if not mount.get("readOnly")]
        if store and not is_below(store, writable):
            yield f"{where}: the model store {store} is not below a volume that can be written"


def reference_problems(documents):
    """ConfigMaps, claims and hosts that are named must be there; those of others are not looked for."""
    names = {(document["kind"], document["metadata"]["name"]) for document in documents}
    if len(names) != len(documents):
        yield "two objects have one name"
    for document in documents:
        if document["kind"] not in WORKLOADS:
            continue
        for volume in pod_of(document)["volumes"]:
            name = volume.get("configMap", {}).get("name")
            if name and ("ConfigMap", name) not in names:
                yield f"{document['metadata']['name']}: mounts the ConfigMap {name}, which is not there"
    files = configurations(documents)
    backend = files["backend.json"]
    members = {document["metadata"]["name"]: document["spec"] for document in documents if document["kind"] == "StatefulSet"}
    hosts = {f"{name}-{number}.{spec['serviceName']}" for name, spec in members.items() for number in range(spec["replicas"])}
    hosts |= {name for kind, name in names if kind == "Service"}
    for endpoint in backend.get("frontends", [backend.get("frontend")]):
        if endpoint.split(":")[0] not in hosts:
            yield f"backend.json: there is no host {endpoint}"
    for endpoint in files["frontend.json"].get("cluster", {}).get("etcd", []):
        if "." not in endpoint and endpoint.split(":")[0] not in hosts:
            yield f"frontend.json: there is no host {endpoint}"


def selector_problems(documents):
    """Every Service, PodDisruptionBudget and NetworkPolicy must select pods that are there."""
    pods = [document["spec"]["template"]["metadata"]["labels"] for document in documents if document["kind"] in WORKLOADS]
    for document in documents:
        spec = document["spec"] if "spec" in document else {}
        selector = {"Service": spec.get("selector"), "PodDisruptionBudget": spec.get("selector", {}).get("matchLabels"),
                    "NetworkPolicy": spec.get("podSelector", {}).get("matchLabels")}.get(document["kind"])
        if selector is not None and not any(selector.items() <= labels.items() for labels in pods):
            yield f"{document['kind']} {document['metadata']['name']}: selects no pod"


def readiness_problems(documents, values):
    """An installation of one frontend is complete before there are models. The update of a cluster waits for frontends that serve."""
    for document in documents:
        if document["kind"] in ("Deployment", "StatefulSet") and document["metadata"]["name"].endswith("-frontend"):
            wanted = values.get("frontend", {}).get("readiness") or {"Deployment": "live", "StatefulSet": "serving"}[document["kind"]]
            path = {"live": "/v2/health/live", "serving": "/v2/health/ready"}[wanted]
            probe = pod_of(document)["containers"][0]["readinessProbe"]["httpGet"]
            if probe["path"] != path:
                yield f"{document['metadata']['name']}: is ready by {probe['path']}, not {path}"
        if document["kind"] == "DaemonSet" and "readinessProbe" not in pod_of(document)["containers"][0]:
            yield f"{document['metadata']['name']}: has no readinessProbe"


def value_problems(documents, values):
    """What may be set for the pods of a component must be in its pods."""
    keys = ("serviceAccountName", "nodeSelector", "tolerations", "affinity", "priorityClassName", "runtimeClassName",
            "terminationGracePeriodSeconds")
    for document in documents:
        component = document["metadata"]["name"].rpartition("-")[2]
        if document["kind"] not in WORKLOADS or component == "etcd":
            continue
        given, pod = values.get(component, {}), pod_of(document)
        container = pod["containers"][0]
        labels = document["spec"]["template"]["metadata"]
        found = {**pod, "podLabels": labels["labels"], "podAnnotations": labels.get("annotations", {}), "env": container.get("env", []),
                 "envFrom": container.get("envFrom"), "extraVolumes": pod["volumes"], "livenessProbe": container.get("livenessProbe"),
                 "extraVolumeMounts": container["volumeMounts"], "resources": container["resources"]}
        for key in (*keys, "podLabels", "podAnnotations", "env", "envFrom", "extraVolumes", "extraVolumeMounts", "livenessProbe",
                    "resources"):
            if key in given and list(missing_parts(given[key], found.get(key))):
                yield f"{document['metadata']['name']}: has not the value of {component}.{key}"


def missing_parts(wanted, found):
    """The parts of a value that another one lacks. Lists may have more items."""
    if isinstance(wanted, dict) and isinstance(found, dict):
        for key, value in wanted.items():
            yield from missing_parts(value, found.get(key))
    elif isinstance(wanted, list) and isinstance(found, list):
        yield from (item for item in wanted if item not in found)
    elif wanted != found:
        yield wanted


def gpu_problems(documents, values):
    """Pods with a GPU need a share of it, the runtime that adds the driver, and memory that MPS shares with its clients; others get
    none of it."""
    gpu = values.get("backend", {}).get("gpu", {})
    for document in (one for one in documents if one["kind"] == "DaemonSet"):
        where, pod = document["metadata"]["name"], pod_of(document)
        container = pod["containers"][0]
        has_gpu = any(name.startswith("nvidia.com/") for name in container["resources"].get("limits", {}))
        capabilities = [one["value"] for one in container.get("env", []) if one["name"] == "NVIDIA_DRIVER_CAPABILITIES"]
        mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
        shared = [volume for volume in pod["volumes"] if volume["name"] == mounts.get("/dev/shm")]
        found = (has_gpu, "runtimeClassName" in pod, capabilities == ["compute,utility"],
                 bool(shared) and shared[0].get("emptyDir", {}).get("medium") == "Memory")
        wanted = (gpu.get("enabled", False),) * 4
        if found != wanted:
            yield f"{where}: GPU, runtime class, capabilities, shared memory are {found}, not {wanted}"


def set_problems(documents, values):
    """Problems of one rendered set that are found without other programs."""
    yield from reference_problems(documents)
    yield from selector_problems(documents)
    yield from readiness_problems(documents, values)
    yield from value_problems(documents, values)
    yield from gpu_problems(documents, values)
    for document in documents:
        if document["kind"] in WORKLOADS:
            yield from security_problems(document)
    files = configurations(documents)
    for document in documents:
        if document["kind"] in WORKLOADS and not document["metadata"]["name"].endswith("-etcd"):
            yield from mount_problems(document, files["backend.json" if document["kind"] == "DaemonSet" else "frontend.json"])


# ---- the overlays

def essence(value, key=""):
    """What two ways of making the same objects have in common."""
    if isinstance(value, dict):
        dropped = {"annotations", "imagePullPolicy", "app.kubernetes.io/instance", "namespace"}
        return {name: essence(inner, name) for name, inner in value.items() if name not in dropped}
    if isinstance(value, list):
        items = [essence(item) for item in value]
        named = all(isinstance(item, dict) and "name" in item for item in items)
        return sorted(items, key=lambda item: item["name"]) if named and key != "containers" else items
    return value


def objects(documents):
    """{(kind, name): essence}. Kustomize adds a hash to the names of ConfigMaps."""
    found = {}
    hashed = {document["metadata"]["name"]: re.sub(r"-[0-9a-z]{10}$", "", document["metadata"]["name"])
              for document in documents if document["kind"] == "ConfigMap"}
    for document in documents:
        name = document["metadata"]["name"]
        plain = essence({key: value for key, value in document.items() if key != "metadata"})
        if document["kind"] == "ConfigMap":
            name, plain["data"] = hashed[name], {file: json.loads(text) for file, text in document["data"].items()}
        if document["kind"] in WORKLOADS:
            for volume in pod_of(plain)["volumes"]:
                if "configMap" in volume:
                    volume["configMap"]["name"] = hashed[volume["configMap"]["name"]]
        if document["kind"] == "Service" and plain["spec"].get("type") == "ClusterIP":
            del plain["spec"]["type"]
        if document["kind"] != "Namespace":
            found[document["kind"], name] = plain
    return found


def differences(chart, overlay, place=""):
    """Where two values differ."""
    if isinstance(chart, dict) and isinstance(overlay, dict):
        for key in sorted({*chart, *overlay}, key=str):
            if key not in chart or key not in overlay:
                yield f"{place}/{key} is only in the {'chart' if key in chart else 'overlay'}"
            else:
                yield from differences(chart[key], overlay[key], f"{place}/{key}")
    elif isinstance(chart, list) and isinstance(overlay, list) and len(chart) == len(overlay):
        for index, (one, other) in enumerate(zip(chart, overlay)):
            yield from differences(one, other, f"{place}/{index}")
    elif chart != overlay:
        yield f"{place} is {chart} in the chart and {overlay} in the overlay"


def overlay_problems(yaml, name, documents):
    built = kubectl(["kustomize", ROOT / "packaging/kubernetes" / name])
    if built.returncode != 0:
        yield built.stderr.strip()
        return
    chart, overlay = objects(documents), objects(list(yaml.safe_load_all(built.stdout)))
    for place in differences(chart, overlay):
        yield f"differs from the overlay: {place}"


# ---- the programs

def configuration_problems(program, documents, root):
    """The programs must accept the configuration, with the files that it names in place."""
    files = {"models.json": json.loads((ROOT / "packaging/etc/models.json").read_text(encoding="utf-8")),
             **configurations(documents)}
    problem = make_served_files(program, files["models.json"]["models"], root / "var/lib/gpulet")
    if problem:
        yield problem
    text = {name: re.sub(r'"(/(?:etc|var)/)', lambda found: f'"{root}{found.group(1)}', json.dumps(value))
            for name, value in files.items()}
    for path in paths_in([json.loads(text["frontend.json"]), json.loads(text["backend.json"])]):
        file = Path(path)
        if file.name == "models.json" or is_below(path, [f"{root}/etc/gpulet-secrets"]):
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text["models.json"] if file.name == "models.json" else "", encoding="utf-8")
    for name in ("models.json", "frontend.json", "backend.json"):
        file = root / name
        file.write_text(text[name], encoding="utf-8")
        checked = run([program, "config", "check", "--elsewhere", file])
        if checked.returncode != 0:
            yield f"{name}: {checked.stdout.strip()}"


def version_problems(yaml):
    project = re.search(r"^project\(\w+ VERSION (\S+)", (ROOT / "CMakeLists.txt").read_text(encoding="utf-8"), re.M).group(1)
    about = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    for key in ("version", "appVersion"):
        if about[key] != project:
            yield f"Chart.yaml: {key} is {about[key]}, and the project's version {project}"


def comment_problems(text):
    """Every value of values.yaml must have a comment above it, alone or with the values below the same key."""
    lines = text.splitlines()
    covered = None  # the indentation of a key with a comment for all that is below it
    for number, line in enumerate(lines):
        key = re.match(r"( *)(\w+):(.*)", line)
        indent = len(line) - len(line.lstrip())
        if covered is not None and line.strip() and indent <= covered:
            covered = None
        if not key or covered is not None:
            continue
        commented = lines[number - 1].lstrip().startswith("#")
        if not commented and key.group(3):
            yield f"values.yaml: line {number + 1}, {key.group(2)}, has no comment"
        if commented and not key.group(3) and not lines[number + 1].lstrip().startswith("#"):
            covered = indent


def chart_problems(yaml, render, build):
    yield from version_problems(yaml)
    yield from comment_problems((CHART / "values.yaml").read_text(encoding="utf-8"))
    for file in sorted((CHECKS / "values").glob("*.yaml")):
        text, error = rendered(render([file]))
        if error:
            yield f"{file.stem}: {error}"
            continue
        documents = [document for document in yaml.safe_load_all(text) if document]
        problems = list(set_problems(documents, yaml.safe_load(file.read_text(encoding="utf-8"))))
        problems += port_problems("frontend.json", ports_of(configurations(documents)["frontend.json"]), default_ports())
        if file.stem == "base":
            problems += deployment_problems(documents, default_ports())
        if shutil.which("kubectl"):
            for document in documents:
                if document["kind"] in WORKLOADS:
                    problems += [f"{document['kind']}: {problem}" for problem in type_problems(document)]
            if (ROOT / "packaging/kubernetes" / file.stem).is_dir():
                problems += overlay_problems(yaml, file.stem, documents)
        if build:
            with tempfile.TemporaryDirectory() as folder:
                problems += configuration_problems(build / "bin/gpulet", documents, Path(folder))
        yield from (f"{file.stem}: {problem}" for problem in problems)
    with tempfile.TemporaryDirectory() as folder:
        for what, values in REFUSED.items():
            file = Path(folder) / "values.yaml"
            file.write_text(json.dumps(values), encoding="utf-8")
            if not rendered(render([file]))[1]:
                yield f"the chart takes {what}"


class SelfTest(unittest.TestCase):
    def test_other_values_are_found(self):
        self.assertEqual(list(differences({"a": [1, {"b": 2}]}, {"a": [1, {"b": 2}]})), [])
        self.assertEqual(len(list(differences({"a": [1, {"b": 2}], "c": 1}, {"a": [1, {"b": 3}], "d": 1}))), 3)
        self.assertEqual(len(list(differences([1], [1, 2]))), 1)

    def test_objects_are_compared_without_what_only_one_way_makes(self):
        pod = {"volumes": [{"name": "c", "configMap": {"name": "f-7c5k2d9m4t"}}], "containers": []}
        overlay = [{"kind": "Namespace", "metadata": {"name": "n"}},
                   {"kind": "ConfigMap", "metadata": {"name": "f-7c5k2d9m4t"}, "data": {"f.json": "{}"}},
                   {"kind": "DaemonSet", "metadata": {"name": "b", "namespace": "n"}, "spec": {"template": {"spec": pod}}}]
        chart = json.loads(json.dumps(overlay[1:]).replace("-7c5k2d9m4t", ""))
        chart[1]["spec"]["template"]["metadata"] = {"annotations": {"sum": "1"}}
        overlay[2]["spec"]["template"]["metadata"] = {}
        self.assertEqual(objects(chart), objects(overlay))

    def test_files_on_no_volume_and_open_stores_are_found(self):
        pod = {"containers": [{"volumeMounts": [{"name": "a", "mountPath": "/a", "readOnly": True},
                                                {"name": "s", "mountPath": "/s"}]}],
               "volumes": [{"name": "a"}, {"name": "s"}]}
        document = {"kind": "DaemonSet", "metadata": {"name": "b"}, "spec": {"template": {"spec": pod}}}
        self.assertEqual(list(mount_problems(document, {"key": "/a/key", "model_store": "/s/models"})), [])
        self.assertEqual(len(list(mount_problems(document, {"key": "/b/key", "model_store": "/a/models"}))), 2)
        self.assertEqual(len(list(mount_problems(document, {"cluster": {"model_store": "/s"}}))), 2)
        pod["volumes"].pop()
        self.assertEqual(len(list(mount_problems(document, {}))), 1)

    def test_hosts_that_are_not_there_are_found(self):
        def release(frontends):
            return [{"kind": "ConfigMap", "metadata": {"name": "c"},
                     "data": {"frontend.json": "{}", "backend.json": json.dumps({"frontends": frontends})}},
                    {"kind": "StatefulSet", "metadata": {"name": "f"},
                     "spec": {"serviceName": "s", "replicas": 2, "template": {"spec": {"volumes": []}}}}]

        self.assertEqual(list(reference_problems(release(["f-0.s:1", "f-1.s:1"]))), [])
        self.assertEqual(len(list(reference_problems(release(["f-0.s:1", "f-2.s:1"])))), 1)

    def test_readiness_and_values_that_are_not_there_are_found(self):
        container = {"readinessProbe": {"httpGet": {"path": "/v2/health/live"}}, "volumeMounts": [], "resources": {"limits": {"a": 1}}}
        document = {"kind": "Deployment", "metadata": {"name": "g-frontend"},
                    "spec": {"template": {"metadata": {"labels": {"a": "1"}}, "spec": {"containers": [container], "volumes": []}}}}
        self.assertEqual(list(readiness_problems([document], {})), [])
        self.assertEqual(len(list(readiness_problems([document], {"frontend": {"readiness": "serving"}}))), 1)
        self.assertEqual(list(value_problems([document], {"frontend": {"podLabels": {"a": "1"}}})), [])
        self.assertEqual(len(list(value_problems([document], {"frontend": {"serviceAccountName": "s", "podLabels": {"b": "1"}}}))), 2)

    def test_pods_that_lack_what_a_gpu_needs_are_found(self):
        container = {"env": [{"name": "NVIDIA_DRIVER_CAPABILITIES", "value": "compute,utility"}],
                     "volumeMounts": [{"name": "s", "mountPath": "/dev/shm"}], "resources": {"limits": {"nvidia.com/gpu": 1}}}
        pod = {"containers": [container], "runtimeClassName": "nvidia", "volumes": [{"name": "s", "emptyDir": {"medium": "Memory"}}]}
        document = {"kind": "DaemonSet", "metadata": {"name": "b"}, "spec": {"template": {"spec": pod}}}
        values = {"backend": {"gpu": {"enabled": True}}}
        self.assertEqual(list(gpu_problems([document], values)), [])
        self.assertEqual(len(list(gpu_problems([document], {}))), 1)
        del pod["volumes"][0]["emptyDir"]["medium"]
        self.assertEqual(len(list(gpu_problems([document], values))), 1)

    def test_selectors_of_nothing_are_found(self):
        workload = {"kind": "Deployment", "metadata": {"name": "f"}, "spec": {"template": {"metadata": {"labels": {"a": "1"}}}}}
        service = {"kind": "Service", "metadata": {"name": "s"}, "spec": {"selector": {"a": "1"}}}
        self.assertEqual(list(selector_problems([workload, service])), [])
        service["spec"]["selector"]["b"] = "2"
        self.assertEqual(len(list(selector_problems([workload, service]))), 1)

    def test_values_without_a_comment_are_found(self):
        good = "# A.\na: 1\ngroup:\n  # B.\n  b: 1\n# C.\nc:\n  x: 1\n  y: {z: 1}\n"
        self.assertEqual(list(comment_problems(good)), [])
        self.assertEqual(len(list(comment_problems("# A.\na: 1\nb: 2\ngroup:\n  # C.\n  c: 1\n  d: 1\n"))), 2)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path)
    parser.add_argument("--self-test", action="store_true")
    options = parser.parse_args()
    if options.self_test:
        return 0 if unittest.main(argv=[sys.argv[0]], exit=False).result.wasSuccessful() else 1
    try:
        import yaml
    except ImportError:
        print("check_chart: no PyYAML; skipped (Debian: python3-yaml)")
        return SKIPPED
    with tempfile.TemporaryDirectory() as folder:
        render = renderer(Path(folder))
        if not render:
            print("check_chart: neither helm nor go with its libraries; skipped (scripts/setup --for dev)")
            return SKIPPED
        problems = list(chart_problems(yaml, render, options.build and options.build.resolve()))
    for problem in problems:
        print(problem)
    print(f"check_chart: {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
