"""Dockerfiles without a container engine, for scripts/check_images.py: what their steps need, and the steps themselves, in
folders on top of each other. Knows FROM, ARG, ENV, WORKDIR, USER, COPY, RUN with --mount=type=bind, HEALTHCHECK, and
ENTRYPOINT and CMD in JSON."""
import fnmatch
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import time
from pathlib import Path

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# Of this machine's environment: how to reach registries, and where files are kept.
PASSED_ON = re.compile(r"(https?|no)_proxy|npm_config_.*|XDG_CACHE_HOME", re.I)
STOP = object()


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


def must(what, words, **more):
    """The output of a command that has to succeed."""
    done = run(words, **more)
    if done.returncode != 0:
        raise Problem(f"{what}: exit code {done.returncode}\n{done.stdout[-3000:]}")
    return done.stdout


def mount(*words):
    must(f"mount {' '.join(map(str, words))}", ["mount", *words])


class Image:
    """A file system on top of another one, with the settings that a Dockerfile gave the image."""

    def __init__(self, name, work, lower=None, base=None):
        self.name, self.layers = name, [work / name / "upper", *(base.layers if base else [lower])]
        self.root = work / name / "root"
        for folder in (work / name / "upper", work / name / "work", self.root):
            folder.mkdir(parents=True)
        mount("-t", "overlay", "overlay", "-o",
              f"lowerdir={':'.join(map(str, self.layers[1:]))},upperdir={self.layers[0]},workdir={work / name / 'work'}", self.root)
        mount("-t", "proc", "proc", self.root / "proc")
        mount("--rbind", "/dev", self.root / "dev")
        self.environment = dict(base.environment) if base else {"PATH": PATH}
        self.folder, self.user = (base.folder, base.user) if base else ("/", "root")
        self.entry, self.command, self.health = (base.entry, base.command, base.health) if base else ([], [], [])

    def path(self, place):
        return self.root / os.path.join(self.folder, str(place)).lstrip("/")

    def put(self, place, content):
        path = self.path(place)
        path.parent.mkdir(parents=True, exist_ok=True)
        (path.write_bytes if isinstance(content, bytes) else path.write_text)(content)

    def settings(self, more=None):
        """The words that set the environment of a command there."""
        passed = {name: value for name, value in os.environ.items() if PASSED_ON.fullmatch(name)}
        home = {"HOME": "/root" if self.user == "root" else "/var/lib/gpulet"}
        settings = {**home, **passed, **self.environment, **(more or {})}
        return ["/usr/bin/env", "-i", f"--chdir={self.folder}", *(f"{name}={value}" for name, value in settings.items())]

    def words(self, command):
        """The words that run a command there."""
        return ["chroot", f"--userspec={self.user}", self.root, *self.settings(), *command]

    def run(self, text):
        must(f"{self.name}: RUN {text[:100]}...", self.words(["/bin/sh", "-c", text]))


class Container:
    """A process of an image as a container engine starts it with a read-only system, without capabilities: first process of its
    own PID namespace, in the network of this process. `volumes`: {place: folder of this system}."""

    def __init__(self, image, log, command=None, volumes=None, environment=None):
        user = image.path("/etc/passwd").read_text(encoding="utf-8")
        number = re.search(rf"^{image.user}:[^:]*:(\d+):(\d+):", user, re.M)
        steps = [["mount", "-t", "proc", "proc", image.root / "proc"], ["mount", "-t", "tmpfs", "tmpfs", image.root / "tmp"],
                 ["mount", "-t", "tmpfs", "-o", "size=1g", "tmpfs", image.root / "dev/shm"]]
        for place, folder in (volumes or {}).items():
            image.path(place).mkdir(parents=True, exist_ok=True)
            os.chown(folder, int(number[1]), int(number[2]))
            steps.append(["mount", "--bind", folder, image.path(place)])
        steps.append(["mount", "-o", "remount,bind,ro", image.root])
        last = ["exec", "chroot", image.root, "setpriv", f"--reuid={number[1]}", f"--regid={number[2]}", "--clear-groups",
                "--no-new-privs", "--inh-caps=-all", "--bounding-set=-all", *image.settings(environment), *image.entry,
                *(command or image.command)]
        script = "\n".join(shlex.join(map(str, step)) for step in [*steps, last])
        self.name, self.log = image.name, log
        self.health = image.words(image.health) if image.health else []
        with open(log, "w", encoding="utf-8") as output:
            self.process = subprocess.Popen(["unshare", "--mount", "--pid", "--fork", "--kill-child", "/bin/sh", "-ec", script],
                                            stdin=subprocess.DEVNULL, stdout=output, stderr=output)

    def first(self):
        """The first process of the container, as this process sees it."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text(encoding="utf-8").split()
        if not children:
            raise Problem(f"a container has ended: {self.said()}")
        return int(children[0])

    def said(self):
        return self.log.read_text(encoding="utf-8")[-2000:]

    def stop(self):
        """The exit code after SIGTERM."""
        os.kill(self.first(), signal.SIGTERM)
        return self.process.wait(60)

    def kill(self):
        self.process.kill()


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


def copy(image, flags, words, images, context):
    if "from" in flags:
        source, target = words.split()
        must(f"{image.name}: COPY {words}", ["cp", "-a", "-T", images[flags["from"]].path(source), image.path(target)])
        return
    for source, place in copied_by(words, context_files(context)):
        copy_file(context / source, image.path(place))


def describe(image, word, words):
    """A step that changes settings of the image, and nothing in its file system."""
    if word == "ENV":
        image.environment.update(substituted(pair, image.environment).split("=", 1) for pair in shlex.split(words))
    elif word == "WORKDIR":
        image.folder = words
        image.path(".").mkdir(parents=True, exist_ok=True)
    elif word == "USER":
        image.user = words
    elif word == "ENTRYPOINT":
        image.entry, image.command = json.loads(words), []
    elif word == "CMD":
        image.command = json.loads(words)
    elif word == "HEALTHCHECK":
        image.health = json.loads(words.removeprefix("CMD "))
    elif word not in ("EXPOSE", "VOLUME", "ARG"):
        raise Problem(f"{image.name}: {word} is not known here")


def run_step(image, word, rest, images, context):
    flags, words = options_of(rest)
    if word == "COPY":
        copy(image, flags, words, images, context)
    elif word == "RUN" and "mount" in flags:
        run_with_mount(image, flags, words, images)
    elif word == "RUN":
        image.run(words)
    else:
        describe(image, word, words)


def make_images(text, context, work, base_of, replacement):
    """({name: image}, whether no step is missing). `base_of(name)` is what stands in for an image from elsewhere. `replacement(words)`
    is a function of the image that takes the place of a RUN, or None: the RUN itself, or STOP: that step and all after it are
    left out."""
    images = {}
    for stage in stages_of(text):
        began = time.monotonic()
        base = images.get(stage["base"]) or base_of(stage["base"])
        image = images[stage["name"]] = Image(stage["name"], work, base=base)
        for word, rest in stage["steps"]:
            instead = replacement(rest) if word == "RUN" else None
            if instead is STOP:
                return images, False
            if instead:
                instead(image)
            else:
                run_step(image, word, rest, images, context)
        print(f"  {stage['name']}: {len(stage['steps'])} steps in {time.monotonic() - began:.0f} s", flush=True)
    return images, True
