#!/usr/bin/env python3
"""Writes the licences of what the built programs contain of others, for an installation and the packages.

  scripts/make_notices.py --build DIR --out FILE [--gzip]
  scripts/make_notices.py --self-test

It looks at what was built, not at a list: the Debian packages whose headers were compiled or whose archives were linked into the
programs (Ninja knows them), the npm packages in the dashboard's page, and ONNX Runtime, if the build has it. Shared libraries are
those of the system; a bundle adds them and their licences itself. Needs Ninja, and dpkg's lists of files. Exits 1 if a part has no
licence.
"""
import argparse
import gzip
import os
import re
import subprocess
import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DPKG = Path("/var/lib/dpkg/info")
DOCUMENTED = Path("/usr/share/doc")
# Objects that no installed program has.
NOT_INSTALLED = re.compile(r"(tests|bench)/|CMakeFiles/gpulet_precompiled_tests")
# The C and C++ libraries, the kernel's interface and Boost, whose licences exempt what is compiled with them.
EXEMPT = re.compile(r"(libc6|libstdc\+\+-\d+|libgcc-\d+|linux-libc|libc\+\+-\d+|libclang-common-\d+|libboost[\d.]*)-dev")
INTRODUCTION = """gpulet contains parts of the software below, or was compiled with it. Each part has its own licence. LICENSE, or on Debian
/usr/share/common-licenses/Apache-2.0, has that of gpulet itself. Texts that begin with /usr/share/common-licenses are there on Debian and
Ubuntu, and at https://www.gnu.org/licenses and https://www.apache.org/licenses.
"""


def headers_of(dependencies, build):
    """The files of the system that installed objects depend on, of the output of `ninja -t deps` in the folder `build`.
    A compiler cache may have made their paths relative to that folder."""
    found, counts = set(), False
    for line in dependencies.splitlines():
        if not line.startswith(" "):
            counts = bool(line) and not NOT_INSTALLED.match(line)
        elif counts:
            path = os.path.normpath(os.path.join(build, line.strip()))
            if path.startswith("/usr/"):
                found.add(path)
    return found


def archives_of(ninja_file):
    return set(re.findall(r"/usr/lib/[\w./+-]+\.a\b", ninja_file))


def packages_with(files, lists):
    """({package}, files of none). `lists`: (package, its files)."""
    left, packages = set(files), set()
    for package, contents in lists:
        there = left.intersection(contents)
        if there:
            packages.add(package)
            left -= there
    return packages, left


def installed_lists():
    for file in DPKG.glob("*.list"):
        yield file.stem.split(":")[0], file.read_text(encoding="utf-8").splitlines()


def notices_of(build):
    """[(name, licence)], by name."""
    told = subprocess.run(["ninja", "-C", build, "-t", "deps"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=True).stdout
    files = headers_of(told, build) | archives_of((build / "build.ninja").read_text(encoding="utf-8"))
    packages, unknown = packages_with(files, installed_lists())
    # A file may have another name than dpkg's list: links of folders, alternatives.
    more, unknown = packages_with({str(Path(file).resolve()) for file in unknown}, installed_lists())
    if unknown:
        raise SystemExit(f"make_notices: no Debian package has {sorted(unknown)[0]}, so its licence is unknown")
    notices = [(package, (DOCUMENTED / package / "copyright").read_text(encoding="utf-8"))
               for package in packages | more if not EXEMPT.fullmatch(package)]
    page = build / "src/dashboard/licences.txt"
    if page.is_file():
        notices.append(("The dashboard's page", page.read_text(encoding="utf-8")))
    if (build / "lib/gpulet/libonnxruntime.so.1").exists():
        notices.append(("ONNX Runtime", "\n".join((ROOT / "packaging/notices" / name).read_text(encoding="utf-8")
                                                  for name in ("onnxruntime.txt", "onnxruntime-parts.txt"))))
    return sorted(notices, key=lambda notice: notice[0].lower())


def text_of(notices):
    line = "=" * 78
    return "\n\n".join([INTRODUCTION, "\n".join(f"- {name}" for name, _ in notices),
                        *(f"{line}\n{name}\n{line}\n\n{text.strip()}" for name, text in notices)]) + "\n"


class SelfTest(unittest.TestCase):
    DEPENDENCIES = ("src/a.o: #deps 3, deps mtime 1 (VALID)\n    ../src/a.cc\n    /usr/include/x.h\n\n"
                    "tests/b.o: #deps 1\n    /usr/include/test.h\n\n")

    def test_headers_of_installed_objects_count(self):
        self.assertEqual(headers_of(self.DEPENDENCIES, "/p/build"), {"/usr/include/x.h"})
        relative = self.DEPENDENCIES.replace("/usr/", "../../usr/")
        self.assertEqual(headers_of(relative, "/p/build"), {"/usr/include/x.h"})

    def test_archives(self):
        self.assertEqual(archives_of("LINK = a.so /usr/lib/x86_64-linux-gnu/libp.a  -lz\n"), {"/usr/lib/x86_64-linux-gnu/libp.a"})

    def test_packages(self):
        lists = [("p", ["/usr/include/x.h"]), ("q", ["/usr/include/y.h"])]
        self.assertEqual(packages_with({"/usr/include/x.h", "/usr/z"}, lists), ({"p"}, {"/usr/z"}))

    def test_exempt(self):
        self.assertTrue(EXEMPT.fullmatch("libstdc++-12-dev") and EXEMPT.fullmatch("linux-libc-dev") and EXEMPT.fullmatch("libc6-dev"))
        self.assertFalse(EXEMPT.fullmatch("libcli11-dev"))

    def test_text(self):
        self.assertIn("- p\n- q\n", text_of([("p", "licence p"), ("q", "licence q")]))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--gzip", action="store_true")
    parser.add_argument("--self-test", action="store_true")
    options = parser.parse_args()
    if options.self_test:
        return 0 if unittest.main(argv=[sys.argv[0]], exit=False).result.wasSuccessful() else 1
    if not options.build or not options.out:
        parser.error("--build and --out are needed")
    data = text_of(notices_of(options.build.resolve())).encode()
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_bytes(gzip.compress(data, mtime=0) if options.gzip else data)
    return 0


if __name__ == "__main__":
    sys.exit(main())
