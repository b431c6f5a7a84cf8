#!/usr/bin/env python3
"""Checks the container images, docker/Dockerfile and docker/gpu.Dockerfile, without a container engine.

  scripts/check_images.py               read the Dockerfiles: every file that a step uses was copied before. Then run the
                                        steps before the one that compiles, on a throwaway copy of this system, where
                                        `apt-get update` does nothing. Seconds
  scripts/check_images.py --build DIR   and run every step but FROM. In place of the step that compiles, the packages come
                                        from that build. Then the two images serve an ONNX model, which must answer. Minutes
  scripts/check_images.py --bare [--build DIR]
                                        the same in a bare Debian 12, with `apt-get update`: needs debootstrap and its
                                        mirror. Without --build it compiles, too, which takes an hour on two cores
  --packages DIR                        packages that were made before, in place of --build
  scripts/check_images.py --gpu --bundle DIR [--build DIR] [--bare]
                                        the same of the image for GPUs, with a bundle of `make-bundle --folder` in place of the
                                        step that compiles, and Debian's PyTorch and fake libraries of CUDA in place of the
                                        public image of PyTorch. --build: a build with tests, whose fake driver and fake GPU
                                        the image's backend then serves a model on, too
  scripts/check_images.py --self-test   show that the checks find what they are for

The images' processes run as a container engine would start them: alone, with a read-only system, without capabilities. What
was not carried out is printed. The steps run as root in namespaces of their own; exits 77 where this is not possible.
dockerfile_steps.py has the instructions that are known.
"""
import argparse
import ctypes
import fcntl
import json
import os
import re
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import types
import unittest
import urllib.request
from pathlib import Path

import gpu_image
from dockerfile_steps import (STOP, Container, Image, Problem, context_files, copied_by, describe, file_problems, ignored_by, make_images, mount,
                              must, options_of, run, stages_of)

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "tools"))
from serve_program_test import model as onnx_model  # noqa: E402

SKIPPED = 77
SUITE = "bookworm"
USER = 10001
AUTHORITIES = "/etc/ssl/certs/ca-certificates.crt"
FILES = ("docker/Dockerfile", "docker/gpu.Dockerfile")
SERVES_WITHIN_S = 90
CLONE_NEWNET = 0x40000000


# ---- bases

def without_update(image):
    """apt-get takes what this system has: everything that is asked for is installed."""
    wrapper = image.path("/usr/local/bin/apt-get")
    wrapper.write_text('#!/bin/sh\n[ "$1" = update ] || exec /usr/bin/apt-get "$@"\n', encoding="utf-8")
    wrapper.chmod(0o755)


def with_network(image):
    """A bare system asks where this one asks, and trusts whom this one trusts."""
    for name in ("/etc/resolv.conf", "/etc/hosts"):
        shutil.copy(name, image.path(name))
    for name in ("/etc/apt/sources.list", "/etc/apt/sources.list.d"):
        if Path(name).is_dir():
            shutil.copytree(name, image.path(name), dirs_exist_ok=True)
        elif Path(name).is_file():
            shutil.copy(name, image.path(name))
    if Path(AUTHORITIES).is_file():
        shutil.copy(AUTHORITIES, image.path("/etc/authorities-here.crt"))
        image.environment.update(dict.fromkeys(("NODE_EXTRA_CA_CERTS", "npm_config_cafile"), "/etc/authorities-here.crt"))


def bases(options, folder, notes):
    """The function that finds what stands in for an image from elsewhere (dockerfile_steps.make_images)."""
    lower = Path("/")
    if options.bare:
        lower = folder / "bare"
        must("debootstrap", ["debootstrap", "--variant=minbase", SUITE, lower])
    else:
        # A folder of an overlay, as in a container, cannot be the upper layer of another one.
        mount("-t", "tmpfs", "tmpfs", folder)
    here = "a bare Debian 12" if options.bare else "a copy of this system in which `apt-get update` does nothing"

    made = {}

    def base_of(name):
        kind = "pytorch" if "pytorch" in name else "debian"
        notes[f"FROM {name}"] = f"{here} is in its place"
        if kind == "pytorch":
            notes[f"FROM {name}"] += ", with Debian's PyTorch and " + (
                "fake libraries of CUDA" if gpu_image.has_toolkit() else "no CUDA, which is not on this machine")
        if kind not in made:
            image = made[kind] = Image(f"base-{kind}", folder, lower)
            (with_network if options.bare else without_update)(image)
            if kind == "pytorch":
                gpu_image.make_pytorch(image, options.bare)
        return made[kind]
    return base_of


# ---- in place of compiling

def take_packages(options, image):
    """The packages of a build, where the compiling step would put its own."""
    folder = image.path("/packages")
    folder.mkdir()
    if options.packages:
        for package in options.packages.glob("*.deb"):
            shutil.copy(package, folder)
    else:
        must("cpack", ["cpack", "--config", options.build / "CPackConfig.cmake", "-B", folder, "-D",
                       "CPACK_DEBIAN_COMPRESSION_TYPE=zstd"])
    if len(list(folder.glob("*.deb"))) != 2:
        raise Problem(f"there are {len(list(folder.glob('*.deb')))} packages, not 2")


def take_bundle(options, image):
    """An unpacked bundle, where the compiling step would put its own."""
    must("the bundle", ["cp", "-a", "-T", options.bundle, image.path("/opt/gpulet")])


def replacements(options, notes):
    """What takes the place of the steps that compile (dockerfile_steps.make_images)."""
    def replacement(words):
        found = re.search(r"cmake --build|scripts/make-bundle", words)
        if not found:
            return None
        take = take_packages if found[0].startswith("cmake") else take_bundle
        ready = (options.build or options.packages) if take is take_packages else options.bundle
        if ready:
            notes[f"RUN ... {found[0]} ..."] = f"what {ready} holds is in its place"
            return lambda image: take(options, image)
        return None if options.bare else STOP
    return replacement


# ---- serving

def put_models(frontend, work, served):
    """What the frontend's volumes hold: `served` is [(name, file, its content, type of device, size of its output)]."""
    frontend.put("/etc/gpulet/frontend.json", (ROOT / "docker/compose/frontend.json").read_text(encoding="utf-8"))
    entries = [{"name": name, "file": f"../models/{file}", "slo_ms": 1000, "rate": 1, "max_batch": 4,
                "inputs": [{"name": "image", "type": "FP32", "shape": [4]}],
                "outputs": [{"name": "scores", "type": "FP32", "shape": [size]}]} for name, file, _, _, size in served]
    frontend.put("/var/lib/gpulet/config/models.json", json.dumps({"models": entries}))
    for name, file, content, device, _ in served:
        frontend.put(f"/var/lib/gpulet/models/{file}", content)
        frontend.put("/tmp/latency.csv", "model,batch,partition,latency_ms\n" + "".join(
            f"{name},{batch},{size},5\n" for batch in (1, 4) for size in (20, 40, 60, 80, 100)))
        must("profile import", frontend.words(["gpulet", "profile", "import", "--name", device, "--latency", "/tmp/latency.csv",
                                               "--out", f"/tmp/profiles-{name}"]))
        shutil.copytree(frontend.path(f"/tmp/profiles-{name}"), frontend.path("/var/lib/gpulet/profiles"), dirs_exist_ok=True)


def put_backend(backend, work, config):
    """Its file, and its volume, which has the owner that its folder has in the image."""
    backend.put("/etc/gpulet/backend.json", json.dumps(config))
    with open(backend.path("/etc/hosts"), "a", encoding="utf-8") as hosts:
        hosts.write("127.0.0.1 frontend\n")
    store = backend.path("/var/lib/gpulet/store")
    if not store.is_dir() or store.stat().st_uid != USER:
        raise Problem(f"the backend's image has no /var/lib/gpulet/store of user {USER}")
    (work / "store").mkdir()
    return {"/var/lib/gpulet/store": work / "store"}


def own_network():
    """This process gets a network with a loopback interface alone, in which every port is free."""
    if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNET) != 0:
        raise Problem(f"unshare: {os.strerror(ctypes.get_errno())}")
    with socket.socket() as some:
        request = struct.pack("16sH14x", b"lo", 1)  # IFF_UP
        fcntl.ioctl(some, 0x8914, request)  # SIOCSIFFLAGS


def answer(name):
    body = {"inputs": [{"name": "image", "datatype": "FP32", "shape": [1, 4], "data": [1, 2, 3, 4]}]}
    request = urllib.request.Request(f"http://127.0.0.1:8000/v2/models/{name}/infer", json.dumps(body).encode())
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=10) as reply:
        return json.load(reply)["outputs"][0]["data"]


def serve(containers, image, served):
    """Each model answers, the health checks are content, and SIGTERM ends all processes. `image`: one with the gpulet command."""
    try:
        waited = run(image.words(["gpulet", "wait", *(name for name, *_ in served), "--timeout", str(SERVES_WITHIN_S)]))
        logs = "\n".join(container.said() for container in containers)
        if waited.returncode != 0:
            raise Problem(f"the images do not serve: {waited.stdout}\n{logs}")
        for name, file, _, _, size in served:
            found = answer(name)
            if len(found) != size or (file.endswith(".onnx") and found != [1, 2, 3, 4]):
                raise Problem(f"the images answer {file} with {found}\n{logs}")
            print(f"  {file} answers", flush=True)
        for container in containers:
            if container.health:
                must(f"the health check of {container.name}", container.health)
        codes = [container.stop() for container in containers]
        if any(codes):
            raise Problem(f"after SIGTERM the containers end with {codes}\n{logs}")
    finally:
        for container in containers:
            container.kill()


def serve_images(images, work):
    """docker/Dockerfile, as docker/compose.yml runs it."""
    frontend, backend = images["frontend"], images["backend"]
    served = [("echo", "echo.onnx", onnx_model(), "cpu-core", 4)]
    put_models(frontend, work, served)
    store = put_backend(backend, work, json.loads((ROOT / "docker/compose/backend.json").read_text(encoding="utf-8")))
    own_network()
    serve([Container(frontend, work / "frontend.log"), Container(backend, work / "backend.log", volumes=store)], frontend, served)


def serve_gpu_image(images, work, options, notes):
    """docker/gpu.Dockerfile: the backend as docker/compose-gpu.yml runs it, with the bundle's frontend."""
    frontend, backend = images["tools"], images["backend"]
    served = [("echo", "echo.onnx", onnx_model(), "cpu-core", 4)]
    state, volumes = work / "machine", {}
    config = gpu_image.gpu_backend(ROOT / "docker/compose/backend-of-gpu.json")
    if gpu_image.has_fakes(options.build):
        served.append(("small", "small.pt", gpu_image.torchscript_file(), config["devices"][0]["type"], 10))
        gpu_image.add_fake_gpu(backend, options.build)
        volumes[gpu_image.STATE] = gpu_image.fake_machine(state)
    else:
        notes["a GPU"] = "left out: --build names no build with the fake driver of the tests"
    put_models(frontend, work, served)
    volumes.update(put_backend(backend, work, config))
    own_network()
    problems = []
    if state.is_dir():
        asked = Container(backend, work / "devices.log", ["gpulet", "devices", "--json"], volumes)
        asked.process.wait(60)
        problems += gpu_image.devices_problems(asked.log.read_text(encoding="utf-8"))
    started = [Container(frontend, work / "frontend.log", ["gpulet-frontend", "--config", "/etc/gpulet/frontend.json"]),
               Container(backend, work / "backend.log", volumes=volumes)]
    serve(started, frontend, served)
    if state.is_dir():
        problems += gpu_image.daemon_problems(state, USER)
        if problems:
            raise Problem("\n".join([*problems, started[1].said()]))
        print("  the GPU's model ran as a client of the MPS daemon that the backend had started", flush=True)


def check_steps(options):
    """Runs in namespaces of its own. Everything is gone when it ends."""
    folder, notes = Path(tempfile.mkdtemp(prefix="check-images-", dir=options.work)), {}
    file = "docker/gpu.Dockerfile" if options.gpu else "docker/Dockerfile"
    try:
        images, complete = make_images((ROOT / file).read_text(encoding="utf-8"), ROOT, folder, bases(options, folder, notes),
                                       replacements(options, notes))
        if complete and options.gpu:
            serve_gpu_image(images, folder, options, notes)
        elif complete:
            serve_images(images, folder)
        else:
            notes["all from the step that compiles on"] = "left out: see --help"
        for what, why in notes.items():
            print(f"  not carried out: {what}: {why}")
    finally:
        run(["umount", "--recursive", "--lazy", folder])
        for image in folder.glob("*/root"):
            run(["umount", "--recursive", "--lazy", image])
        shutil.rmtree(folder, ignore_errors=True)


def in_namespaces(arguments):
    """Runs this script again in namespaces of its own, so that no process and no mount is left."""
    inside = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    if os.geteuid() != 0 or run([*inside, "true"]).returncode != 0:
        print("check_images: the steps run as root in namespaces of their own, which this user or system does not allow; skipped")
        return SKIPPED
    return subprocess.run([*inside, sys.executable, __file__, "--inside", *arguments], check=False).returncode


class SelfTest(unittest.TestCase):
    DOCKERFILE = """# a comment
ARG BASE=debian:12
FROM debian:12 AS build
WORKDIR /src
COPY scripts/setup scripts/setup
# in between
RUN scripts/setup --for run \\
 && true
COPY . .
RUN scripts/other
FROM ${BASE} AS small
RUN --mount=type=bind,from=build,source=/a,target=/b ls /b
CMD ["x", "y"]
"""
    FILES = {"scripts/setup": '"${BASH_SOURCE[0]%/*}/more"', "scripts/more": "", "scripts/other": "scripts/more"}

    def problems(self, text):
        return list(file_problems(text, set(self.FILES), self.FILES.get))

    def test_stages_and_steps(self):
        stages = stages_of(self.DOCKERFILE)
        self.assertEqual([(stage["name"], stage["base"], len(stage["steps"])) for stage in stages],
                         [("build", "debian:12", 5), ("small", "debian:12", 2)])
        self.assertEqual(stages[0]["steps"][2], ("RUN", "scripts/setup --for run  && true"))
        self.assertEqual(options_of(stages[1]["steps"][0][1]),
                         ({"mount": "type=bind,from=build,source=/a,target=/b"}, "ls /b"))
        self.assertEqual(stages_of(self.DOCKERFILE, {"BASE": "cuda:12"})[1]["base"], "cuda:12")

    def test_files_that_were_not_copied_are_found(self):
        self.assertEqual(len(self.problems(self.DOCKERFILE)), 1)
        self.assertEqual(self.problems(self.DOCKERFILE.replace("scripts/setup scripts/setup", "scripts scripts")), [])
        self.assertEqual(self.problems(self.DOCKERFILE.replace("scripts/setup scripts/setup", "scripts/setup scripts/more scripts/")), [])
        self.assertEqual(len(self.problems("FROM a\nCOPY nothing /x\n")), 1)

    def test_what_is_said_of_an_image(self):
        image = types.SimpleNamespace(name="i", environment={"PATH": "/bin"}, entry=[], command=["old"], health=[], user="root")
        for word, rest in (("ENV", "PATH=/opt/bin:${PATH} A=1"), ("ENTRYPOINT", '["tini", "--"]'), ("USER", "gpulet"), ("EXPOSE", "1"),
                           ("HEALTHCHECK", '--interval=5s  CMD ["true"]')):
            describe(image, word, options_of(rest)[1])
        self.assertEqual(image.environment, {"PATH": "/opt/bin:/bin", "A": "1"})
        # A new entry point has no command of an image below.
        self.assertEqual((image.entry, image.command, image.health, image.user), (["tini", "--"], [], ["true"], "gpulet"))
        with self.assertRaises(Problem):
            describe(image, "ONBUILD", "RUN x")

    def test_bases_with_arguments(self):
        text = "ARG P=a/b:1\nFROM ${P}-devel AS tools\nFROM ${P}-runtime AS small\n"
        self.assertEqual([stage["base"] for stage in stages_of(text)], ["a/b:1-devel", "a/b:1-runtime"])

    def test_copies(self):
        files = set(self.FILES)
        self.assertEqual(copied_by("scripts/setup /a/", files), [("scripts/setup", "/a/setup")])
        self.assertEqual(copied_by("scripts/setup /a/b", files), [("scripts/setup", "/a/b")])
        self.assertEqual(sorted(copied_by("scripts /a", files))[0], ("scripts/more", "/a/more"))

    def test_what_is_ignored(self):
        ignored = ignored_by([".git", "models/*.pt", "**/__pycache__"])
        self.assertTrue(ignored(".git") and ignored(".git/config") and ignored("models/a.pt") and ignored("a/__pycache__/b"))
        self.assertFalse(ignored("models/a.onnx") or ignored("a/.gitignore"))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path)
    parser.add_argument("--packages", type=Path)
    parser.add_argument("--bare", action="store_true")
    parser.add_argument("--gpu", action="store_true")
    parser.add_argument("--bundle", type=Path)
    parser.add_argument("--work", type=Path, help="folder for what is made (default: that of temporary files)")
    parser.add_argument("--self-test", action="store_true")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.self_test:
        return 0 if unittest.main(argv=[sys.argv[0]], exit=False).result.wasSuccessful() else 1
    options.build = options.build and options.build.resolve()
    options.packages = options.packages and options.packages.resolve()
    options.bundle = options.bundle and options.bundle.resolve()
    problems = []
    if options.inside:
        try:
            check_steps(options)
        except Problem as problem:
            problems.append(str(problem))
    else:
        files = context_files(ROOT)
        for name in FILES:
            text = (ROOT / name).read_text(encoding="utf-8")
            problems += [f"{name}: {one}" for one in file_problems(
                text, files, lambda file: (ROOT / file).read_text(encoding="utf-8"))]
        if not problems:
            return in_namespaces(sys.argv[1:])
    print("\n".join([*problems, f"check_images: {len(problems)} problems"]))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
