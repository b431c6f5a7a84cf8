#!/usr/bin/env python3
"""Checks the container images, docker/Dockerfile, without a container engine.

  scripts/check_images.py               read the Dockerfiles: every file that a step uses was copied before. Then run the
                                        steps before the one that compiles, on a throwaway copy of this system, where
                                        `apt-get update` does nothing. Seconds
  scripts/check_images.py --build DIR   and run every step but FROM. In place of the step that compiles, the packages come
                                        from that build. Then the two images serve an ONNX model, which must answer. Minutes
  scripts/check_images.py --bare [--build DIR]
                                        the same in a bare Debian 12, with `apt-get update`: needs debootstrap and its
                                        mirror. Without --build it compiles, too, which takes an hour on two cores
  --packages DIR                        packages that were made before, in place of --build
  scripts/check_images.py --self-test   show that the checks find what they are for

The steps run as root in namespaces of their own; exits 77 where this is not possible. It knows FROM, ARG, ENV, WORKDIR, USER,
COPY, RUN with --mount=type=bind, and CMD in JSON.
"""
import argparse
import ctypes
import fcntl
import fnmatch
import json
import os
import re
import shlex
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "tools"))
from serve_program_test import model as onnx_model  # noqa: E402

SKIPPED = 77
SUITE = "bookworm"
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# Of this machine's environment: how to reach registries, and where files are kept.
PASSED_ON = re.compile(r"(https?|no)_proxy|npm_config_.*|XDG_CACHE_HOME", re.I)
AUTHORITIES = "/etc/ssl/certs/ca-certificates.crt"
CONTEXTS = {"docker/Dockerfile": ROOT, "docker/cuda-base.Dockerfile": ROOT / "docker"}
SERVES_WITHIN_S = 90
CLONE_NEWNET = 0x40000000


class Problem(Exception):
    """A step fails. The text says which one, and why."""


# ---- Dockerfiles

def instructions_of(text):
    """[(word, rest)]. Comments are left out, continued lines are one."""
    joined, found = "", []
    for line in text.splitlines():
        if line.lstrip().startswith("#"):
            continue
        joined += line[:-1] if line.endswith("\\") else line
        if line.endswith("\\"):
            continue
        if joined.strip():
            word, _, rest = joined.strip().partition(" ")
            found.append((word.upper(), rest.strip()))
        joined = ""
    return found


def options_of(rest):
    """({name: value}, the words after them) of `--name=value ...`."""
    options = {}
    while match := re.match(r"--([\w-]+)=(\S+)\s+", rest):
        options.setdefault(match[1], match[2])
        rest = rest[match.end():]
    return options, rest


def substituted(text, values):
    return re.sub(r"\$\{?(\w+)\}?", lambda name: values.get(name[1], ""), text)


def stages_of(text, arguments=None):
    """[{name, base, steps}] with the values of ARG put into FROM."""
    values, stages = dict(arguments or {}), []
    for word, rest in instructions_of(text):
        if word == "ARG" and not stages:
            name, _, default = rest.partition("=")
            values.setdefault(name, default)
        elif word == "FROM":
            words = substituted(rest, values).split()
            stages.append({"name": words[2] if len(words) == 3 else str(len(stages)), "base": words[0], "steps": []})
        else:
            stages[-1]["steps"].append((word, rest))
    return stages


def ignored_by(patterns):
    """Whether .dockerignore keeps a path of the context out of it."""
    def ignored(path):
        parents = [path, *(str(parent) for parent in Path(path).parents if str(parent) != ".")]
        return any(fnmatch.fnmatch(one, pattern) or (pattern.startswith("**/") and fnmatch.fnmatch(one, pattern[3:]))
                   for one in parents for pattern in patterns)
    return ignored


def context_files(folder):
    """The files that COPY can see, relative to the context."""
    file = folder / ".dockerignore"
    lines = file.read_text(encoding="utf-8").split("\n") if file.is_file() else []
    ignored = ignored_by([line.strip() for line in lines if line.strip() and not line.startswith("#")])
    found = []
    for where, folders, names in os.walk(folder):
        inside = Path(where).relative_to(folder)
        folders[:] = [name for name in folders if not ignored(str(inside / name))]
        found += [str(inside / name) for name in names if not ignored(str(inside / name))]
    return set(found)


def copied_by(rest, files):
    """[(source, place)] of one COPY from the context; `place` is relative to the working folder, or absolute."""
    words = rest.split()
    sources, target = [os.path.normpath(word) for word in words[:-1]], words[-1]
    pairs = []
    for source in sources:
        if source in files:
            into_folder = target.endswith("/") or len(sources) > 1
            pairs.append((source, os.path.join(target, os.path.basename(source)) if into_folder else target))
            continue
        below = [file for file in files if source == "." or file.startswith(source + "/")]
        if not below:
            raise Problem(f"COPY {rest}: {source} is not in the context, or .dockerignore keeps it out")
        pairs += [(file, os.path.join(target, os.path.relpath(file, source))) for file in below]
    return [(source, os.path.normpath(place)) for source, place in pairs]


def used_by(command, read, files):
    """The files of the repository that a command runs, and those that these run."""
    found, left = set(), [command]
    while left:
        text = re.sub(r"^\s*#.*$", "", left.pop(), flags=re.M)
        words = set(re.findall(r"(?<![\w/.-])(?:\./)?((?:[\w.-]+/)+[\w.-]+)", text))
        # Beside the script itself: "${BASH_SOURCE[0]%/*}/NAME".
        words |= {f"scripts/{name}" for name in re.findall(r"BASH_SOURCE\[0\]%/\*\}/([\w.-]+)", text)}
        for file in (words & files) - found:
            found.add(file)
            left.append(read(file))
    return found


def file_problems(text, files, read):
    """What a Dockerfile uses without having copied it. `read` gives a file's text."""
    for stage in stages_of(text):
        there = set()
        for word, rest in stage["steps"]:
            options, words = options_of(rest)
            if word == "COPY" and "from" not in options:
                try:
                    there |= {place for _, place in copied_by(words, files)}
                except Problem as problem:
                    yield f"{stage['name']}: {problem}"
            elif word == "RUN":
                for file in sorted(used_by(words, read, files) - there):
                    yield f"{stage['name']}: RUN {words[:60]}...: uses {file}, which was not copied before"


# ---- running the steps

def run(words, **more):
    return subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          check=False, **more)


def mount(*words):
    done = run(["mount", *words])
    if done.returncode != 0:
        raise Problem(f"mount {' '.join(map(str, words))}: {done.stdout.strip()}")


class Image:
    """A file system on top of another one, and what a Dockerfile has said of it."""

    def __init__(self, name, lower, work, base=None):
        self.name, self.layers = name, [work / name / "upper", *(base.layers if base else [lower])]
        self.root = work / name / "root"
        for folder in (work / name / "upper", work / name / "work", self.root):
            folder.mkdir(parents=True)
        mount("-t", "overlay", "overlay", "-o",
              f"lowerdir={':'.join(map(str, self.layers[1:]))},upperdir={self.layers[0]},workdir={work / name / 'work'}", self.root)
        mount("-t", "proc", "proc", self.root / "proc")
        mount("--rbind", "/dev", self.root / "dev")
        self.environment = dict(base.environment) if base else {"PATH": PATH}
        self.folder, self.user, self.command = ("/", "root", []) if not base else (base.folder, base.user, base.command)

    def path(self, place):
        return self.root / os.path.join(self.folder, str(place)).lstrip("/")

    def words(self, command):
        """The words that run a command there."""
        passed = {name: value for name, value in os.environ.items() if PASSED_ON.fullmatch(name)}
        home = {"HOME": "/root" if self.user == "root" else "/var/lib/gpulet"}
        settings = [f"{name}={value}" for name, value in {**home, **passed, **self.environment}.items()]
        return ["chroot", f"--userspec={self.user}", self.root, "/usr/bin/env", "-i", f"--chdir={self.folder}", *settings, *command]

    def run(self, text):
        done = run(self.words(["/bin/sh", "-c", text]))
        if done.returncode != 0:
            raise Problem(f"{self.name}: RUN {text[:100]}...: exit code {done.returncode}\n{done.stdout[-3000:]}")


def copy_file(source, place):
    place.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(source, place, follow_symlinks=False)


def run_with_mount(image, options, text, images):
    bind = dict(part.split("=", 1) for part in options["mount"].split(","))
    if bind.get("type") != "bind":
        raise Problem(f"{image.name}: RUN --mount={options['mount']} is not known here")
    place = image.path(bind["target"])
    place.mkdir(parents=True, exist_ok=True)
    mount("--bind", images[bind["from"]].path(bind["source"]), place)
    try:
        image.run(text)
    finally:
        run(["umount", place])


def take_packages(options, image):
    """The packages of a build, where the compiling step would put its own."""
    folder = image.path("/packages")
    folder.mkdir()
    if options.packages:
        for package in options.packages.glob("*.deb"):
            shutil.copy(package, folder)
    else:
        made = run(["cpack", "--config", options.build / "CPackConfig.cmake", "-B", folder, "-D", "CPACK_DEBIAN_COMPRESSION_TYPE=zstd"])
        if made.returncode != 0:
            raise Problem(f"cpack: {made.stdout[-2000:]}")
    if len(list(folder.glob("*.deb"))) != 2:
        raise Problem(f"there are {len(list(folder.glob('*.deb')))} packages, not 2")


def compiles(word, rest):
    return word == "RUN" and "cmake --build" in rest


def run_step(image, word, rest, images, options):
    flags, words = options_of(rest)
    if word == "COPY":
        if "from" in flags:
            source, target = words.split()
            run(["cp", "-a", images[flags["from"]].path(source), image.path(target)])
            return
        for source, place in copied_by(words, context_files(ROOT)):
            copy_file(ROOT / source, image.path(place))
    elif compiles(word, words) and (options.build or options.packages):
        take_packages(options, image)
    elif word == "RUN" and "mount" in flags:
        run_with_mount(image, flags, words, images)
    elif word == "RUN":
        image.run(words)
    elif word == "ENV":
        image.environment.update(pair.split("=", 1) for pair in shlex.split(words))
    elif word == "WORKDIR":
        image.folder = words
        image.path(".").mkdir(parents=True, exist_ok=True)
    elif word == "USER":
        image.user = words
    elif word == "CMD":
        image.command = json.loads(words)
    elif word not in ("EXPOSE", "VOLUME", "ARG"):
        raise Problem(f"{image.name}: {word} is not known here")


def make_images(text, lower, work, options, prepare):
    """The images, or those whose steps come before the first that compiles."""
    images = {}
    complete = options.bare or options.build or options.packages
    for stage in stages_of(text):
        began = time.monotonic()
        base = images.get(stage["base"])
        image = images[stage["name"]] = Image(stage["name"], lower, work, base)
        if not base:
            prepare(image)
        for word, rest in stage["steps"]:
            if compiles(word, rest) and not complete:
                return images
            run_step(image, word, rest, images, options)
        print(f"  {stage['name']}: {len(stage['steps'])} steps in {time.monotonic() - began:.0f} s", flush=True)
    return images


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


# ---- serving

def put(image, place, text):
    path = image.path(place)
    path.parent.mkdir(parents=True, exist_ok=True)
    (path.write_bytes if isinstance(text, bytes) else path.write_text)(text)


def put_served_files(frontend, backend):
    """What compose.yml mounts, with a small ONNX model."""
    put(frontend, "/etc/gpulet/frontend.json", (ROOT / "docker/compose/frontend.json").read_text(encoding="utf-8"))
    put(backend, "/etc/gpulet/backend.json", (ROOT / "docker/compose/backend.json").read_text(encoding="utf-8"))
    entry = {"name": "echo", "file": "../models/echo.onnx", "slo_ms": 1000, "rate": 1, "max_batch": 4,
             "inputs": [{"name": "image", "type": "FP32", "shape": [4]}],
             "outputs": [{"name": "scores", "type": "FP32", "shape": [4]}]}
    put(frontend, "/var/lib/gpulet/config/models.json", json.dumps({"models": [entry]}))
    put(frontend, "/var/lib/gpulet/models/echo.onnx", onnx_model())
    put(frontend, "/tmp/latency.csv", "model,batch,partition,latency_ms\n" + "".join(
        f"echo,{batch},{size},1\n" for batch in (1, 4) for size in (20, 40, 60, 80, 100)))
    imported = run([*frontend.words(["gpulet", "profile", "import", "--name", "cpu-core", "--latency", "/tmp/latency.csv",
                                     "--out", "/tmp/profiles"])])
    if imported.returncode != 0:
        raise Problem(f"profile import: {imported.stdout}")
    shutil.copytree(frontend.path("/tmp/profiles"), frontend.path("/var/lib/gpulet/profiles"), dirs_exist_ok=True)
    # A volume has the owner that its folder has in the image.
    store = backend.path("/var/lib/gpulet/store")
    if not store.is_dir() or store.stat().st_uid != 10001:
        raise Problem("the backend's image has no /var/lib/gpulet/store of its user")
    with open(backend.path("/etc/hosts"), "a", encoding="utf-8") as hosts:
        hosts.write("127.0.0.1 frontend\n")


def own_network():
    """This process gets a network with a loopback interface alone, in which every port is free."""
    if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNET) != 0:
        raise Problem(f"unshare: {os.strerror(ctypes.get_errno())}")
    with socket.socket() as some:
        request = struct.pack("16sH14x", b"lo", 1)  # IFF_UP
        fcntl.ioctl(some, 0x8914, request)  # SIOCSIFFLAGS


def answer():
    body = {"inputs": [{"name": "image", "datatype": "FP32", "shape": [1, 4], "data": [1, 2, 3, 4]}]}
    request = urllib.request.Request("http://127.0.0.1:8000/v2/models/echo/infer", json.dumps(body).encode())
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=10) as reply:
        return json.load(reply)["outputs"][0]["data"]


def serve(frontend, backend, work):
    put_served_files(frontend, backend)
    own_network()
    started = []
    try:
        for image in (frontend, backend):
            with open(work / f"{image.name}.log", "w", encoding="utf-8") as log:
                started.append(subprocess.Popen(image.words(image.command), stdin=subprocess.DEVNULL, stdout=log, stderr=log))
        waited = run([*frontend.words(["gpulet", "wait", "echo", "--timeout", str(SERVES_WITHIN_S)])])
        logs = "".join((work / f"{image.name}.log").read_text(encoding="utf-8")[-2000:] for image in (frontend, backend))
        if waited.returncode != 0:
            raise Problem(f"the images serve no ONNX model: {waited.stdout}\n{logs}")
        if answer() != [1, 2, 3, 4]:
            raise Problem(f"the images answer an ONNX model wrongly: {answer()}")
        for process in started:
            process.send_signal(signal.SIGTERM)
        codes = [process.wait(60) for process in started]
        if codes != [0, 0]:
            raise Problem(f"frontend and backend end with {codes} after SIGTERM\n{logs}")
    finally:
        for process in started:
            process.kill()


def check_steps(options):
    """Runs in namespaces of its own. Everything is gone when it ends."""
    folder = Path(tempfile.mkdtemp(prefix="check-images-", dir=options.work))
    try:
        lower, prepare = Path("/"), without_update
        if options.bare:
            lower, prepare = folder / "bare", with_network
            made = run(["debootstrap", "--variant=minbase", SUITE, lower])
            if made.returncode != 0:
                raise Problem(f"debootstrap: {made.stdout[-1000:]}")
        else:
            # A folder of an overlay, as in a container, cannot be the upper layer of another one.
            mount("-t", "tmpfs", "tmpfs", folder)
        images = make_images((ROOT / "docker/Dockerfile").read_text(encoding="utf-8"), lower, folder, options, prepare)
        if "backend" in images:
            serve(images["frontend"], images["backend"], folder)
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
    parser.add_argument("--work", type=Path, help="folder for what is made (default: that of temporary files)")
    parser.add_argument("--self-test", action="store_true")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.self_test:
        return 0 if unittest.main(argv=[sys.argv[0]], exit=False).result.wasSuccessful() else 1
    options.build = options.build and options.build.resolve()
    options.packages = options.packages and options.packages.resolve()
    problems = []
    if options.inside:
        try:
            check_steps(options)
        except Problem as problem:
            problems.append(str(problem))
    else:
        for name, context in CONTEXTS.items():
            text = (ROOT / name).read_text(encoding="utf-8")
            problems += [f"{name}: {one}" for one in file_problems(
                text, context_files(context), lambda file, context=context: (context / file).read_text(encoding="utf-8"))]
        if not problems:
            return in_namespaces(sys.argv[1:])
    print("\n".join([*problems, f"check_images: {len(problems)} problems"]))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
