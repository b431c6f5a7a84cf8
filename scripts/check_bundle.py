#!/usr/bin/env python3
"""Checks a bundle (scripts/make-bundle) for the systems that it supports, without running it.

  scripts/check_bundle.py FOLDER [--archive FILE]    print the newest symbol versions needed, and every problem
  scripts/check_bundle.py --self-test                test the checks

Programs and libraries may use glibc 2.35 and libstdc++ and libgcc of GCC 12 (those of Ubuntu 22.04; Debian 12 and
Ubuntu 24.04 have newer ones). The bundle must contain every other library with its licence, found by a relative run
path. The archive has at most 75 MB. Needs objdump.
"""
import argparse
import re
import subprocess
import sys
import unittest
from pathlib import Path

# The newest symbol versions of Ubuntu 22.04.
NEWEST = {"GLIBC": "2.35", "GLIBCXX": "3.4.30", "CXXABI": "1.3.13", "GCC": "12.0.0"}
MACHINES_OWN = re.compile(r"(ld-linux-x86-64|libc|libm|libdl|librt|libpthread|libresolv|libstdc\+\+|libgcc_s)\.so\.\d+$")
RUN_PATHS = {"bin": {"$ORIGIN/../lib", "$ORIGIN/../lib/gpulet"}, "lib": {"$ORIGIN"}}
LARGEST_ARCHIVE = 75_000_000
EXPECTED = ["bin/gpulet", "bin/gpulet-frontend", "bin/gpulet-backend", "bin/gpulet-proxy-onnx", "bin/gpulet-proxy-simulated", "scripts/torch-setup",
            "scripts/gpu-check", "src/executor/torch/gpulet_executor.cc", "include/gpulet/executor/boundary/boundary.h",
            "share/licences/THIRD_PARTY", "examples/simulated/frontend.json", "START_HERE.md", "README.md", "LICENSE"]


def numbers(version):
    return [int(part) for part in version.split(".")]


def read_headers(text):
    """Parses `objdump -p`: (libraries needed, run paths, {symbol version})."""
    needed = re.findall(r"^\s+NEEDED\s+(\S+)", text, re.M)
    paths = re.findall(r"^\s+(?:RUNPATH|RPATH)\s+(\S+)", text, re.M)
    references = text.partition("Version References:")[2]
    versions = re.findall(r"^\s+0x[0-9a-f]+ 0x[0-9a-f]+ \d+ (\S+)", references, re.M)
    return needed, [one for path in paths for one in path.split(":")], set(versions)


def version_problems(versions):
    for version in sorted(versions):
        prefix, _, number = version.partition("_")
        if prefix not in NEWEST:
            continue
        # GLIBC_ABI_DT_RELR and GLIBC_PRIVATE are of newer systems, or of one glibc alone.
        if not re.fullmatch(r"\d+(\.\d+)*", number) or numbers(number) > numbers(NEWEST[prefix]):
            yield f"needs {version}; {prefix}_{NEWEST[prefix]} is the newest on every supported system"


def file_problems(kind, headers, libraries):
    """The problems of a file in `kind` (bin or lib) with those libraries next to it."""
    needed, paths, versions = headers
    yield from version_problems(versions)
    for path in paths:
        if path not in RUN_PATHS[kind]:
            yield f"looks for libraries in {path}, which is not relative to itself"
    for library in needed:
        if not MACHINES_OWN.match(library) and library not in libraries:
            yield f"needs {library}, which is not in the bundle"
        elif library in libraries and not paths:
            yield f"has no run path, and so does not find {library}"


def is_elf(file):
    with open(file, "rb") as stream:
        return stream.read(4) == b"\x7fELF"


def bundle_problems(folder):
    libraries = {file.name for file in (folder / "lib").iterdir() if file.is_file()}
    newest = {}
    for file in sorted(file for file in folder.rglob("*") if file.is_file() and is_elf(file)):
        text = subprocess.run(["objdump", "-p", file], check=True, stdout=subprocess.PIPE, text=True).stdout
        headers = read_headers(text)
        name = file.relative_to(folder)
        # lib/gpulet: what is opened at run time.
        if name.parts[0] not in RUN_PATHS or str(name.parent) not in ("bin", "lib", "lib/gpulet"):
            yield f"{name}: a program or library in a place for neither"
            continue
        for problem in file_problems(name.parts[0], headers, libraries):
            yield f"{name}: {problem}"
        for version in headers[2]:
            prefix, _, number = version.partition("_")
            if prefix in NEWEST and re.fullmatch(r"\d+(\.\d+)*", number):
                newest[prefix] = max(newest.get(prefix, (numbers("0"), "")), (numbers(number), str(name)))
    for prefix, (version, name) in sorted(newest.items()):
        print(f"  {prefix}_{'.'.join(map(str, version))} is the newest of {prefix}, at most {NEWEST[prefix]} (for {name})")
    for name in EXPECTED:
        if not (folder / name).is_file():
            yield f"{name}: is not there"
    licences = {file.name for file in (folder / "share/licences").glob("*")}
    if libraries and len(licences) < 2:
        yield "share/licences: has no licence of a library"
    if "THIRD_PARTY" in licences:
        notices = (folder / "share/licences/THIRD_PARTY").read_text(encoding="utf-8")
        yield from notice_problems(notices, contains(folder / "bin/gpulet-frontend", b"/assets/main-"),
                                   (folder / "lib/gpulet/libonnxruntime.so.1").is_file())
    for link in (file for file in folder.rglob("*") if file.is_symlink()):
        yield f"{link.relative_to(folder)}: a symbolic link"


def contains(file, text):
    return file.is_file() and text in file.read_bytes()


def notice_problems(notices, has_page, has_onnxruntime):
    """The notices must name what every build contains, and what this one does."""
    wanted = ["libcli11-dev", "nlohmann-json3-dev"]
    if has_page:
        wanted.append("uplot")
    if has_onnxruntime:
        wanted += ["Microsoft Corporation", "abseil-cpp", "google/re2"]
    for name in wanted:
        if name not in notices:
            yield f"THIRD_PARTY: has no licence of {name}"


def archive_problems(folder, archive):
    for name in ("gpulet-proxy", "gpulet-kernels"):
        if not (folder / "bin" / name).is_file():
            yield f"bin/{name}: is not there; it must be built without LibTorch (preset bundle)"
    if not (folder / "lib/gpulet/libonnxruntime.so.1").is_file():
        yield "lib/gpulet/libonnxruntime.so.1: is not there; get it with scripts/onnxruntime-setup, then build again"
    size = archive.stat().st_size
    print(f"  {archive.name}: {size / 1e6:.1f} MB, at most {LARGEST_ARCHIVE / 1e6:.0f}")
    if size > LARGEST_ARCHIVE:
        yield f"{archive}: is too large"


class SelfTest(unittest.TestCase):
    HEADERS = """
Dynamic Section:
  NEEDED               libssl.so.3
  NEEDED               libc.so.6
  RUNPATH              $ORIGIN/../lib
Version References:
  required from libc.so.6:
    0x069691b4 0x00 03 GLIBC_2.34
    0x09691a75 0x00 02 GLIBC_2.2.5
"""

    def test_reads_what_objdump_says(self):
        self.assertEqual(read_headers(self.HEADERS),
                         (["libssl.so.3", "libc.so.6"], ["$ORIGIN/../lib"], {"GLIBC_2.34", "GLIBC_2.2.5"}))

    def test_newer_symbols_are_found(self):
        self.assertEqual(list(version_problems({"GLIBC_2.35", "GLIBCXX_3.4.30", "OPENSSL_3.0.9"})), [])
        for version in ("GLIBC_2.36", "GLIBC_2.100", "GLIBCXX_3.4.31", "GLIBC_ABI_DT_RELR", "GLIBC_PRIVATE"):
            self.assertEqual(len(list(version_problems({version}))), 1, version)

    def test_missing_notices_are_found(self):
        notices = "- libcli11-dev\n- nlohmann-json3-dev\nuplot 1.6\n"
        self.assertEqual(list(notice_problems(notices, True, False)), [])
        self.assertEqual(len(list(notice_problems(notices, True, True))), 3)
        self.assertEqual(len(list(notice_problems("", True, False))), 3)

    def test_missing_libraries_and_absolute_paths_are_found(self):
        headers = read_headers(self.HEADERS)
        self.assertEqual(list(file_problems("bin", headers, {"libssl.so.3"})), [])
        self.assertEqual(len(list(file_problems("bin", headers, set()))), 1)
        self.assertEqual(len(list(file_problems("lib", headers, {"libssl.so.3"}))), 1)
        self.assertEqual(len(list(file_problems("bin", (["libssl.so.3"], [], set()), {"libssl.so.3"}))), 1)
        self.assertEqual(len(list(file_problems("bin", ([], ["/usr/lib"], set()), set()))), 1)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--archive", type=Path)
    parser.add_argument("--self-test", action="store_true")
    options = parser.parse_args()
    if options.self_test:
        return 0 if unittest.main(argv=[sys.argv[0]], exit=False).result.wasSuccessful() else 1
    if not options.folder:
        parser.error("a folder is needed")
    problems = list(bundle_problems(options.folder))
    if options.archive:
        problems += archive_problems(options.folder, options.archive)
    for problem in problems:
        print(problem)
    print(f"check_bundle: {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
