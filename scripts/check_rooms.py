#!/usr/bin/env python3
"""Holds the sources against the table of rooms (docs/architecture.md).

A room may include only its own headers and those of the rooms above it; a heavy library only where the table lets
it; nothing that touches the world (sockets, threads, clocks) in a pure room; every header begins with a comment that
states its contract and has #pragma once; no file grows beyond MAX_LINES.

  scripts/check_rooms.py [--root DIR]     check include/ and src/ below DIR, print every finding, exit 1 if any
  scripts/check_rooms.py --self-test      show that each rule finds what it is for
"""
import argparse
import re
import sys
import tempfile
from pathlib import Path

# From the bottom up: a row may use the rows before it, and the rooms of one row nothing of each other.
TABLE = [
    ("core",),
    ("confine",),
    ("control",),
    ("partition",),
    ("config",),
    ("profile",),
    ("gpu",),
    ("partition/drivers",),
    ("mig",),
    ("schedule",),
    ("learn",),
    ("batching",),
    ("observe",),
    ("observe/sinks",),
    ("serve",),
    ("executor",),
    ("executor/boundary",),
    ("executor/torch",),
    ("net/codec",),
    ("net",),
    ("net/http",),
    ("net/kserve",),
    ("net/grpc",),
    ("simulate",),
    ("load",),
    ("train",),
    ("frontend", "backend", "proxy"),
    ("tools",),
]
RANK = {room: rank for rank, row in enumerate(TABLE) for room in row}

# Decisions: events and times in, values out.
PURE = {"core", "control", "config", "profile", "partition", "mig", "schedule", "learn", "batching", "serve", "simulate"}
# They read and write files, and touch nothing else of the world.
FILE_ROOMS = {"config", "profile", "learn"}
FILE_INCLUDE = re.compile(r"(unistd\.h|fcntl\.h|sys/stat\.h)$")
WORLDLY_INCLUDE = re.compile(
    r"(thread|mutex|shared_mutex|condition_variable|future|semaphore|latch|barrier|random|iostream|ctime|time\.h"
    r"|unistd\.h|fcntl\.h|poll\.h|signal\.h|csignal|sys/(?!types\.h).*|netinet/.*|arpa/.*|netdb\.h|spdlog/.*)$"
)
WORLDLY_CALL = re.compile(r"\b(system|steady|high_resolution)_clock::now\b|\brandom_device\b|\bstd::(rand|time)\(")

ASIO_ROOMS = {"net", "net/http", "net/grpc", "load", "frontend", "backend", "proxy", "tools"}
LOG_ROOMS = {"observe/sinks", "frontend", "backend", "proxy", "tools"}
# (library, pattern of its headers, rooms that may include it, which of their files may)
ANY, NO_PUBLIC, ONLY_CC = "any file", "not in include/", "only .cc"
HEAVY = [
    ("LibTorch", re.compile(r"(torch|ATen|c10|caffe2)/"), {"executor/torch", "train"}, NO_PUBLIC),
    ("Asio and Beast", re.compile(r"boost/(asio|beast)[/.]|gpulet/net/asio\.h$"), ASIO_ROOMS, ANY),
    ("protobuf", re.compile(r"google/protobuf/|.*\.pb\.h$"), {"net/codec", "net/grpc"}, NO_PUBLIC),
    ("gRPC", re.compile(r"grpc(pp)?/"), {"net/grpc"}, NO_PUBLIC),
    ("OpenSSL", re.compile(r"openssl/"), {"core", "net"}, NO_PUBLIC),
    ("Prometheus", re.compile(r"prometheus/"), {"frontend"}, NO_PUBLIC),
    ("nlohmann/json", re.compile(r"nlohmann/(?!json_fwd\.hpp)"), set(RANK), ONLY_CC),
    ("libseccomp", re.compile(r"seccomp\.h$"), {"confine"}, NO_PUBLIC),
    ("spdlog", re.compile(r"spdlog/"), LOG_ROOMS, ANY),
    ("CLI11", re.compile(r"CLI/"), {"frontend", "backend", "proxy", "tools"}, ANY),
    ("a device's library", re.compile(r"(cuda|nvml)[a-z_]*\.h$"), {"gpu", "executor/torch"}, ANY),
]

MAX_LINES = 450
SUFFIXES = {".h", ".cc"}
INCLUDE = re.compile(r'^\s*#\s*include\s*(<([^>]+)>|"([^"]+)")')


def room_of(relative):
    """The room of a path such as executor/torch/x.cc: the longest prefix that the table knows, or None."""
    parts = Path(relative).parts[:-1]
    for length in range(len(parts), 0, -1):
        name = "/".join(parts[:length])
        if name in RANK:
            return name
    return None


def without_comments(text):
    """The text with comments blanked out, newlines kept. String literals stay as they are."""
    pattern = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"', re.S)

    def blank(match):
        piece = match.group(0)
        return piece if piece.startswith('"') else re.sub(r"[^\n]", " ", piece)

    return pattern.sub(blank, text)


def resolve(root, file, name, quoted):
    """(room, is_private) of an include of this project; None for any other header."""
    if name.startswith("gpulet/") and not name.endswith(".pb.h"):
        return room_of(name[len("gpulet/"):]), False
    if not quoted or name.endswith(".pb.h"):
        return None
    for candidate in (file.parent / name, root / "src" / name):
        if candidate.is_file():
            return room_of(candidate.resolve().relative_to(root / "src")), True
    return "?", True


def include_problem(root, file, room, name, quoted):
    """What is wrong with that include, in words, or None."""
    for library, pattern, rooms, files in HEAVY:
        if pattern.match(name):
            if room not in rooms:
                return f"{name}: {library} is for {', '.join(sorted(rooms))}; give this room an interface instead"
            public = (root / "include") in file.parents
            if (files == ONLY_CC and file.suffix != ".cc") or (files == NO_PUBLIC and public):
                return f"{name}: {library} {files}; pass plain values through the header"
    if room in PURE and WORLDLY_INCLUDE.match(name) and not (room in FILE_ROOMS and FILE_INCLUDE.match(name)):
        return f"<{name}>: '{room}' is pure; take what it gives as an argument"
    found = resolve(root, file, name, quoted)
    if found is None or found == (room, True) or found == (room, False):
        return None
    other, private = found
    if other == "?":
        return f'"{name}": no such file beside this one or below src/; write gpulet/<room>/... or <...>'
    if other is None:
        return f"{name}: belongs to no room of the table in scripts/check_rooms.py"
    if RANK[other] >= RANK[room]:
        return f"{name}: '{room}' may not use '{other}', which does not stand above it"
    if private and not room.startswith(other + "/"):  # a room within a room knows that one's insides
        return f"{name}: a private header of '{other}'; use what is in include/gpulet/{other}/"
    return None


def check_file(root, base, file):
    """Findings of one file as (line, text)."""
    text = file.read_text(encoding="utf-8")
    lines = text.splitlines()
    room = room_of(file.relative_to(base))
    if room is None:
        yield 1, "belongs to no room; add its folder to the table in scripts/check_rooms.py and docs/architecture.md"
        return
    if len(lines) > MAX_LINES:
        yield len(lines), f"{len(lines)} lines, more than {MAX_LINES}; one file is one idea: split it"
    if file.suffix == ".h":
        if not lines or not lines[0].startswith("//"):
            yield 1, "a header begins with a comment that states its contract"
        if not any(line.strip() == "#pragma once" for line in lines):
            yield 1, "a header has #pragma once"
    for number, line in enumerate(without_comments(text).splitlines(), start=1):
        match = INCLUDE.match(line)
        if match:
            problem = include_problem(root, file, room, match.group(2) or match.group(3), match.group(3) is not None)
            if problem:
                yield number, problem
        elif room in PURE and WORLDLY_CALL.search(line):
            yield number, f"'{room}' is pure; take the time or the seed as an argument: {line.strip()}"


def check_tree(root):
    """Findings of a whole tree, as printable lines, and the number of files seen."""
    root = root.resolve()
    findings, seen = [], 0
    for base in (root / "include" / "gpulet", root / "src"):
        for file in sorted(base.rglob("*")):
            if file.suffix in SUFFIXES and file.is_file():
                seen += 1
                findings += [f"{file.relative_to(root)}:{line}: {what}" for line, what in check_file(root, base, file)]
    return findings, seen


H = "// Contract.\n#pragma once\n"
# (name, {path: text}, what a finding must contain, or None where all is well)
SELF_TESTS = [
    ("downward use", {"include/gpulet/core/a.h": H, "src/serve/b.cc": '#include "gpulet/core/a.h"\n'}, None),
    ("own private header", {"src/serve/a.h": H, "src/serve/b.cc": '#include "serve/a.h"\n#include "a.h"\n'}, None),
    ("nested room is its own", {"src/net/b.cc": '#include "gpulet/net/codec/a.h"\n'}, None),
    ("comment is no include", {"src/core/b.cc": "/*\n#include <thread>\n*/\n// #include <torch/script.h>\n"}, None),
    ("json in a source file", {"src/config/b.cc": "#include <nlohmann/json.hpp>\n"}, None),
    ("torch in its room", {"src/executor/torch/b.cc": "#include <torch/script.h>\n"}, None),
    ("sys/types in a pure room", {"include/gpulet/partition/a.h": H + "#include <sys/types.h>\n"}, None),
    ("upward use", {"src/core/b.cc": '#include "gpulet/serve/a.h"\n'}, "src/core/b.cc:1: gpulet/serve/a.h: 'core' may"),
    ("upward use from a nested room", {"src/net/codec/b.cc": '#include "gpulet/net/a.h"\n'}, "'net/codec' may not"),
    ("neighbours of one row", {"src/backend/b.cc": '#include "gpulet/frontend/a.h"\n'}, "'backend' may not use"),
    ("private header of another", {"src/core/a.h": H, "src/serve/b.cc": '#include "core/a.h"\n'}, "a private header"),
    ("private header of the room around", {"src/executor/a.h": H, "src/executor/torch/b.cc": '#include "executor/a.h"\n'}, None),
    ("unknown quoted include", {"src/core/b.cc": '#include "nowhere.h"\n'}, "no such file"),
    ("unknown room", {"src/misc/b.cc": "\n"}, "belongs to no room"),
    ("include of an unknown room", {"src/tools/b.cc": '#include "gpulet/misc/a.h"\n'}, "belongs to no room"),
    ("torch outside", {"src/proxy/b.cc": "#include <torch/script.h>\n"}, "LibTorch is for executor/torch, train"),
    ("asio in a pure room", {"src/serve/b.cc": "#include <boost/asio/post.hpp>\n"}, "Asio and Beast is for"),
    ("asio by the back door", {"src/executor/b.cc": '#include "gpulet/net/asio.h"\n'}, "Asio and Beast is for"),
    ("protobuf outside the codec", {"src/net/b.cc": '#include "gpulet.pb.h"\n'}, "protobuf is for net/codec"),
    ("protobuf in a private header", {"src/net/codec/a.h": H + '#include "gpulet.pb.h"\n'}, None),
    ("protobuf in a public header", {"include/gpulet/net/codec/a.h": H + '#include "gpulet.pb.h"\n'}, "protobuf not in"),
    ("json in a header", {"src/tools/a.h": H + "#include <nlohmann/json.hpp>\n"}, "nlohmann/json only .cc"),
    ("files in a file room", {"src/profile/b.cc": "#include <fcntl.h>\n"}, None),
    ("files in a pure room", {"src/serve/b.cc": "#include <fcntl.h>\n"}, "'serve' is pure"),
    ("thread in a pure room", {"src/schedule/b.cc": "#include <thread>\n"}, "'schedule' is pure"),
    ("clock in a pure room", {"src/batching/b.cc": "auto t = std::chrono::steady_clock::now();\n"}, "is pure; take"),
    ("header without a comment", {"include/gpulet/core/a.h": "#pragma once\n"}, "begins with a comment"),
    ("header without pragma once", {"include/gpulet/core/a.h": "// Contract.\n"}, "has #pragma once"),
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
    print(f"check_rooms self-test: {len(SELF_TESTS) - failed} passed, {failed} failed")
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
        print(f"{options.root}: no source below include/ or src/; is --root right?")
        return 2
    for finding in findings:
        print(finding)
    print(f"check_rooms: {seen} files, {len(findings)} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
