#!/usr/bin/env python3
"""Checks the sources against the layers of modules (docs/architecture.md).

A module may include only its own headers and public headers of lower layers; one that extends another, also the
private headers of that. A heavy library may be included only where
HEAVY lists it. A pure module includes nothing with side effects (sockets, threads, clocks, randomness). Every header
begins with a comment and has #pragma once, and is public only where another module includes it. No file exceeds MAX_LINES.

  scripts/check_modules.py [--root DIR]     check include/ and src/ below DIR; print every finding; exit 1 if any
  scripts/check_modules.py --self-test      check that each rule finds its violations
"""
import argparse
import re
import sys
import tempfile
from pathlib import Path

# From the lowest layer up. A row may use the rows before it; modules of one row may not use each other.
TABLE = [
    ("base",),
    ("archive",),
    ("core",),
    ("confine",),
    ("image",),
    ("control",),
    ("partition",),
    ("protocol",),
    ("config",),
    ("profile",),
    ("gpu",),
    ("partition/drivers",),
    ("schedule",),
    ("research",),
    ("batching",),
    ("verify",),
    ("planning",),
    ("observe",),
    ("observe/sinks",),
    ("store",),
    ("store/remote",),
    ("cluster",),
    ("node",),
    ("serve/values",),
    ("serve/dispatch",),
    ("serve/deploy",),
    ("serve/models",),
    ("serve/adapt",),
    ("serve/plans",),
    ("serve/cluster",),
    ("serve/requests",),
    ("serve/status",),
    ("serve",),
    ("executor",),
    ("executor/boundary",),
    ("executor/torch",),
    ("executor/onnx",),
    ("executor/formats",),
    ("version",),
    ("net",),
    ("access",),
    ("net/http",),
    ("net/kserve",),
    ("net/grpc",),
    ("cluster/etcd",),
    ("simulate",),
    ("load",),
    ("research/train",),
    ("frontend/loop",),
    ("frontend/frames",),
    ("frontend/catalogue",),
    ("frontend/cluster",),
    ("frontend/observe",),
    ("frontend/endpoints",),
    ("frontend", "backend", "proxy"),
    ("tools/report",),
    ("tools/measure",),
    ("tools/serve",),
    ("tools/cli",),
    ("tools/train",),
]
RANK = {module: rank for rank, row in enumerate(TABLE) for module in row}

# No sockets, threads, clocks, randomness or logging.
PURE = {
    "base", "archive", "core", "control", "partition", "config", "profile", "protocol", "schedule", "research", "batching", "verify", "planning", "observe",
    "cluster", "image",
    "node", "serve/values", "serve/dispatch", "serve/deploy", "serve/models", "serve/adapt", "serve/plans", "serve/cluster",
    "serve/requests", "serve/status", "serve", "simulate",
}
# Pure but for reading and writing files.
FILE_MODULES = {"base", "archive", "config", "profile", "research"}
FILE_INCLUDE = re.compile(r"(unistd\.h|fcntl\.h|sys/stat\.h)$")
IMPURE_INCLUDE = re.compile(
    r"(thread|mutex|shared_mutex|condition_variable|future|semaphore|latch|barrier|random|iostream|ctime|time\.h"
    r"|unistd\.h|fcntl\.h|poll\.h|signal\.h|csignal|sys/(?!types\.h).*|netinet/.*|arpa/.*|netdb\.h|spdlog/.*)$"
)
IMPURE_CALL = re.compile(r"\b(system|steady|high_resolution)_clock::now\b|\brandom_device\b|\bstd::(rand|time)\(")

# Modules that extend others, and use their private headers.
EXTENDS = {"research": {"profile", "schedule"}, "tools/train": {"research", "research/train"}}

FRONTEND_WINGS = {"frontend/loop", "frontend/frames", "frontend/catalogue", "frontend/cluster", "frontend/observe", "frontend/endpoints"}
ASIO_MODULES = {"net", "access", "net/http", "net/grpc", "cluster/etcd", "load", "frontend", "backend", "proxy", "tools/report", "tools/measure", "tools/cli"} | FRONTEND_WINGS
LOG_MODULES = {"observe/sinks", "store", "frontend", "backend", "proxy", "tools/report", "tools/measure", "tools/cli"} | FRONTEND_WINGS
# (library, pattern of its headers, modules that may include it, files of these modules that may)
ANY, NO_PUBLIC, ONLY_CC = "any file", "not in include/", "only .cc"
HEAVY = [
    ("LibTorch", re.compile(r"(torch|ATen|c10|caffe2)/"), {"executor/torch", "research/train"}, NO_PUBLIC),
    ("Asio and Beast", re.compile(r"boost/(asio|beast)[/.]|gpulet/net/asio\.h$"), ASIO_MODULES, ANY),
    ("protobuf", re.compile(r"google/protobuf/|.*\.pb\.h$"), {"protocol", "net/grpc", "cluster/etcd", "tools/serve"}, NO_PUBLIC),
    ("gRPC", re.compile(r"grpc(pp)?/"), {"net/grpc", "cluster/etcd"}, NO_PUBLIC),
    ("OpenSSL", re.compile(r"openssl/"), {"base", "net", "access"}, NO_PUBLIC),
    ("Prometheus", re.compile(r"prometheus/"), {"frontend/observe"}, NO_PUBLIC),
    ("nlohmann/json", re.compile(r"nlohmann/(?!json_fwd\.hpp)"), set(RANK), ONLY_CC),
    ("libcurl", re.compile(r"curl/"), {"store/remote"}, ONLY_CC),
    ("libjpeg and libpng", re.compile(r"(jpeglib|jerror|png)\.h$"), {"image", "tools/cli"}, NO_PUBLIC),
    ("libseccomp", re.compile(r"seccomp\.h$"), {"confine"}, NO_PUBLIC),
    ("spdlog", re.compile(r"spdlog/"), LOG_MODULES, ANY),
    ("CLI11", re.compile(r"CLI/"), {"frontend", "backend", "proxy", "tools/report", "tools/measure", "tools/cli", "tools/train"}, ANY),
    ("a device's library", re.compile(r"(cuda|nvml)[a-z_]*\.h$"), {"gpu", "executor/torch"}, ANY),
]

MAX_LINES = 700
SUFFIXES = {".h", ".cc"}
INCLUDE = re.compile(r'^\s*#\s*include\s*(<([^>]+)>|"([^"]+)")')


def module_of(relative):
    """The module of a path such as executor/torch/x.cc: the longest prefix in the table, or None."""
    parts = Path(relative).parts[:-1]
    for length in range(len(parts), 0, -1):
        name = "/".join(parts[:length])
        if name in RANK:
            return name
    return None


def without_comments(text):
    """The text with comments replaced by spaces; newlines and string literals are kept."""
    pattern = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"', re.S)

    def blank(match):
        piece = match.group(0)
        return piece if piece.startswith('"') else re.sub(r"[^\n]", " ", piece)

    return pattern.sub(blank, text)


def resolve(root, file, name, quoted):
    """(module, is_private) of an include of this project; None for any other header."""
    if name.startswith("gpulet/") and not name.endswith(".pb.h"):
        return module_of(name[len("gpulet/"):]), False
    if not quoted or name.endswith(".pb.h"):
        return None
    for candidate in (file.parent / name, root / "src" / name):
        if candidate.is_file():
            return module_of(candidate.resolve().relative_to(root / "src")), True
    return "?", True


def include_problem(root, file, module, name, quoted):
    """The finding for that include, or None."""
    for library, pattern, modules, files in HEAVY:
        if pattern.match(name):
            if module not in modules:
                return f"{name}: {library} is for {', '.join(sorted(modules))}; use an interface instead"
            public = (root / "include") in file.parents
            if (files == ONLY_CC and file.suffix != ".cc") or (files == NO_PUBLIC and public):
                return f"{name}: {library} {files}; pass plain values through the header"
    if module in PURE and IMPURE_INCLUDE.match(name) and not (module in FILE_MODULES and FILE_INCLUDE.match(name)):
        return f"<{name}>: '{module}' is pure; pass the value as an argument"
    found = resolve(root, file, name, quoted)
    if found is None or found == (module, True) or found == (module, False):
        return None
    other, private = found
    if other == "?":
        return f'"{name}": no such file in this folder or in src/; write gpulet/<module>/... or <...>'
    if other is None:
        return f"{name}: belongs to no module; add it to the table in scripts/check_modules.py"
    if RANK[other] >= RANK[module]:
        return f"{name}: '{module}' may not use '{other}', which is not in a lower layer"
    extended = EXTENDS.get(module, set())
    if private and other not in extended and module.split("/")[0] != other.split("/")[0]:  # parts of a module share them
        return f"{name}: private header of '{other}'; use the headers in include/gpulet/{other}/"
    return None


def check_file(root, base, file):
    """Findings of one file as (line, text)."""
    text = file.read_text(encoding="utf-8")
    lines = text.splitlines()
    module = module_of(file.relative_to(base))
    if module is None:
        yield 1, "belongs to no module; add its folder to scripts/check_modules.py and docs/architecture.md"
        return
    if len(lines) > MAX_LINES:
        yield len(lines), f"{len(lines)} lines, more than {MAX_LINES}; divide it into components"
    if file.suffix == ".h":
        if not lines or not lines[0].startswith("//"):
            yield 1, "the header must begin with a comment that states its contract"
        if not any(line.strip() == "#pragma once" for line in lines):
            yield 1, "the header needs #pragma once"
    for number, line in enumerate(without_comments(text).splitlines(), start=1):
        match = INCLUDE.match(line)
        if match:
            problem = include_problem(root, file, module, match.group(2) or match.group(3), match.group(3) is not None)
            if problem:
                yield number, problem
        elif module in PURE and IMPURE_CALL.search(line):
            yield number, f"'{module}' is pure; pass the time or the seed as an argument: {line.strip()}"


def unused_public_headers(root):
    """Public headers that neither a file of another module includes nor a public header that one does."""
    users = {}
    for base in (root / "include" / "gpulet", root / "src"):
        for file in base.rglob("*"):
            if file.suffix in SUFFIXES and file.is_file():
                for match in map(INCLUDE.match, without_comments(file.read_text(encoding="utf-8")).splitlines()):
                    if match and (match.group(3) or "").startswith("gpulet/"):
                        users.setdefault(root / "include" / match.group(3), []).append((module_of(file.relative_to(base)), file))
    headers = sorted((root / "include" / "gpulet").rglob("*.h"))
    used = set()

    def mark(header):
        if header not in used:
            used.add(header)
            for other in headers:
                if any(file == header for _, file in users.get(other, [])):
                    mark(other)

    for header in headers:
        module = module_of(header.relative_to(root / "include" / "gpulet"))
        if any(user != module for user, _ in users.get(header, [])):
            mark(header)
    return [header for header in headers if header not in used]


def check_tree(root):
    """The findings of a tree, as lines, and the number of files."""
    root = root.resolve()
    findings, seen = [], 0
    for base in (root / "include" / "gpulet", root / "src"):
        for file in sorted(base.rglob("*")):
            if file.suffix in SUFFIXES and file.is_file():
                seen += 1
                findings += [f"{file.relative_to(root)}:{line}: {what}" for line, what in check_file(root, base, file)]
    findings += [f"{header.relative_to(root)}:1: no other module includes it; move it to src/" for header in unused_public_headers(root)]
    return findings, seen


H = "// Contract.\n#pragma once\n"


def used(header):
    """A file of another module that includes the public header."""
    return {"src/tools/cli/z.cc": f'#include "gpulet/{header}"\n'}


# (name, {path: text}, text in the only finding, or None for no finding)
SELF_TESTS = [
    ("downward use", {"include/gpulet/core/a.h": H, "src/serve/b.cc": '#include "gpulet/core/a.h"\n'}, None),
    ("own private header", {"src/serve/a.h": H, "src/serve/b.cc": '#include "serve/a.h"\n#include "a.h"\n'}, None),
    ("nested modules have their own layer", {"src/net/http/b.cc": '#include "gpulet/net/a.h"\n'}, None),
    ("comment is no include", {"src/core/b.cc": "/*\n#include <thread>\n*/\n// #include <torch/script.h>\n"}, None),
    ("json in a source file", {"src/config/b.cc": "#include <nlohmann/json.hpp>\n"}, None),
    ("torch in its module", {"src/executor/torch/b.cc": "#include <torch/script.h>\n"}, None),
    ("sys/types in a pure module", {"src/partition/a.h": H + "#include <sys/types.h>\n"}, None),
    ("upward use", {"src/core/b.cc": '#include "gpulet/serve/a.h"\n'}, "src/core/b.cc:1: gpulet/serve/a.h: 'core' may"),
    ("upward use of a nested module", {"src/net/b.cc": '#include "gpulet/net/http/a.h"\n'}, "'net' may not"),
    ("neighbours of one row", {"src/backend/b.cc": '#include "gpulet/frontend/a.h"\n'}, "'backend' may not use"),
    ("private header of another", {"src/core/a.h": H, "src/serve/b.cc": '#include "core/a.h"\n'}, "private header of"),
    ("private header of an extended module", {"src/schedule/a.h": H, "src/research/b.cc": '#include "schedule/a.h"\n'}, None),
    ("private header beside an extended module", {"src/core/a.h": H, "src/research/b.cc": '#include "core/a.h"\n'}, "private header of"),
    ("private header of the outer module", {"src/executor/a.h": H, "src/executor/torch/b.cc": '#include "executor/a.h"\n'}, None),
    ("unknown quoted include", {"src/core/b.cc": '#include "nowhere.h"\n'}, "no such file"),
    ("unknown module", {"src/misc/b.cc": "\n"}, "belongs to no module"),
    ("include of an unknown module", {"src/tools/cli/b.cc": '#include "gpulet/misc/a.h"\n'}, "belongs to no module"),
    ("torch outside", {"src/proxy/b.cc": "#include <torch/script.h>\n"}, "LibTorch is for executor/torch, research/train"),
    ("asio in a pure module", {"src/serve/b.cc": "#include <boost/asio/post.hpp>\n"}, "Asio and Beast is for"),
    ("asio through a header of net", {"src/executor/b.cc": '#include "gpulet/net/asio.h"\n'}, "Asio and Beast is for"),
    ("protobuf outside protocol", {"src/net/b.cc": '#include "gpulet.pb.h"\n'}, "protobuf is for cluster/etcd, net/grpc, protocol"),
    ("protobuf in a private header", {"src/protocol/a.h": H + '#include "gpulet.pb.h"\n'}, None),
    ("protobuf in a public header", {"include/gpulet/protocol/a.h": H + '#include "gpulet.pb.h"\n', **used("protocol/a.h")}, "protobuf not in"),
    ("json in a header", {"src/tools/cli/a.h": H + "#include <nlohmann/json.hpp>\n"}, "nlohmann/json only .cc"),
    ("files in a file module", {"src/profile/b.cc": "#include <fcntl.h>\n"}, None),
    ("files in a pure module", {"src/serve/b.cc": "#include <fcntl.h>\n"}, "'serve' is pure"),
    ("thread in a pure module", {"src/schedule/b.cc": "#include <thread>\n"}, "'schedule' is pure"),
    ("clock in a pure module", {"src/batching/b.cc": "auto t = std::chrono::steady_clock::now();\n"}, "is pure; pass"),
    ("public header of no other module", {"include/gpulet/core/a.h": H, "src/core/b.cc": '#include "gpulet/core/a.h"\n'}, "no other module"),
    ("public header of one that is used", {"include/gpulet/core/a.h": H, "include/gpulet/core/b.h": H + '#include "gpulet/core/a.h"\n',
                                           "src/serve/c.cc": '#include "gpulet/core/b.h"\n'}, None),
    ("header without a comment", {"include/gpulet/core/a.h": "#pragma once\n", **used("core/a.h")}, "begin with a comment"),
    ("header without pragma once", {"include/gpulet/core/a.h": "// Contract.\n", **used("core/a.h")}, "needs #pragma once"),
    ("long file", {"src/core/b.cc": "\n" * (MAX_LINES + 1)}, f"more than {MAX_LINES}"),
]


def self_test():
    failed = 0
    for name, files, expected in SELF_TESTS:
        with tempfile.TemporaryDirectory() as folder:
            for path, text in files.items():
                target = Path(folder) / path
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_text(text, encoding="utf-8")
            findings, _ = check_tree(Path(folder))
        good = not findings if expected is None else len(findings) == 1 and expected in findings[0]
        if not good:
            failed += 1
            print(f"self-test '{name}': expected {expected or 'no finding'}, found {findings}")
    print(f"check_modules self-test: {len(SELF_TESTS) - failed} passed, {failed} failed")
    return 1 if failed else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parent.parent)
    parser.add_argument("--self-test", action="store_true")
    options = parser.parse_args()
    if options.self_test:
        return self_test()
    findings, seen = check_tree(options.root)
    if seen == 0:
        print(f"{options.root}: no sources below include/ or src/; check --root")
        return 2
    for finding in findings:
        print(finding)
    print(f"check_modules: {seen} files, {len(findings)} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
