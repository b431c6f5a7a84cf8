#!/usr/bin/env python3
"""Checks the sizes of the sources: what is larger is several things in one.

  folder        a folder of src/serve and src/frontend has at most 15 sources (.cc) of its own
  class         a class, struct or union has at most 25 public and 30 other methods
  dependencies  a struct named Dependencies, Owner, Callbacks, Needs or Parts, or with a name that ends in one of these,
                has at most 6 members
  functions     src/frontend has at most 40 std::function
  headers       include has at most 100 headers

A method is a function that the body of the class declares, static ones, operators and each overload included.
Constructors, destructors, defaulted and deleted functions, friends and functions in data members are none. Protected
methods count with the private ones; those of a nested class are its own. A member is a non-static data member.

  scripts/check_sizes.py [--root DIR]     check include/ and src/ below DIR; print every finding; exit 1 if any
  scripts/check_sizes.py --classes        print the methods of every class, the largest first, and check nothing
  scripts/check_sizes.py --self-test      test the check
"""
import argparse
import re
import sys
import tempfile
import unittest
from dataclasses import dataclass
from pathlib import Path

from check_await import tokens_of

FOLDERS = ("include", "src")
SUFFIXES = {".h", ".cc"}
MOST_SOURCES, SOURCE_FOLDERS = 15, ("src/serve", "src/frontend")
MOST_PUBLIC, MOST_PRIVATE = 25, 30
MOST_MEMBERS, DEPENDENCIES = 6, re.compile(r"(Dependencies|Owner|Callbacks|Needs|Parts)$")
MOST_FUNCTIONS, FUNCTION_FOLDER = 40, "src/frontend"
MOST_HEADERS, HEADER_FOLDER = 100, "include"

CLASS_KEYS = {"class", "struct", "union"}
ACCESS = {"public", "protected", "private"}
NO_MEMBER = {"using", "typedef", "friend", "static_assert", "enum", "namespace", "extern"}
# Each of these may come before a parenthesis in a declaration that declares no function of this name.
BEFORE_ARGUMENTS = {"alignas", "decltype", "noexcept", "explicit", "requires", "__attribute__"}
PAIRS = {"(": ")", "[": "]", "{": "}"}


@dataclass
class ClassSize:
    name: str  # with the classes around it
    key: str
    line: int
    public: int = 0
    private: int = 0  # and protected
    members: int = 0  # data of each object


@dataclass
class Token:
    text: str
    line: int
    word: bool


def read_tokens(text):
    return [Token(what, line, kind == "word") for kind, what, line in tokens_of(text)]


def partners_of(tokens):
    """The index of the closing token of every opening one."""
    partners, waiting = {}, []
    for index, token in enumerate(tokens):
        if token.text in PAIRS:
            waiting.append(index)
        elif waiting and token.text == PAIRS[tokens[waiting[-1]].text]:
            partners[waiting.pop()] = index
    return partners


class Source:
    """The classes of one source. Indices are those of its tokens."""

    def __init__(self, text):
        self.tokens = read_tokens(text)
        self.partners = partners_of(self.tokens)

    def text(self, index):
        return self.tokens[index].text if 0 <= index < len(self.tokens) else ""

    def after(self, index):
        """Behind the bracket that opens at `index`."""
        return self.partners.get(index, len(self.tokens)) + 1

    def after_angle(self, index):
        """Behind the template arguments that open at `index`, or the next index where they are none."""
        at, depth = index, 0
        while at < len(self.tokens):
            if self.text(at) in PAIRS:
                at = self.after(at)
                continue
            depth += {"<": 1, ">": -1}.get(self.text(at), 0)
            if self.text(at) in ("", ";", ")", "]", "}"):
                return index + 1
            at += 1
            if depth == 0:
                return at
        return index + 1

    def skip_attributes(self, at):
        while True:
            if self.text(at) == "[" and self.text(at + 1) == "[":
                at = self.after(at)
            elif self.text(at) == "alignas":
                at = self.after(at + 1)
            else:
                return at

    def class_at(self, index):
        """(name, index of "{") of the class that a key at `index` defines, or None."""
        if self.text(index) not in CLASS_KEYS or self.text(index - 1) == "enum":
            return None
        at = self.skip_attributes(index + 1)
        name = ""
        while at < len(self.tokens) and self.text(at) not in ("{", ":", ";"):
            if self.text(at) == "<":
                at = self.after_angle(at)
                continue
            if self.tokens[at].word and self.text(at) != "final":
                if name and not name.endswith("::"):
                    return None  # a variable or function of this type
                name += self.text(at)
            elif self.text(at) != "final":
                return None
            at += 1
            if self.text(at) == ":" and self.text(at + 1) == ":":
                name += "::"
                at += 2
        if self.text(at) == ":":
            at = self.bases_end(at)
        return (name or "(unnamed)", at) if self.text(at) == "{" and at in self.partners else None

    def bases_end(self, at):
        while at < len(self.tokens) and self.text(at) not in ("{", ";"):
            at = self.after_angle(at) if self.text(at) == "<" else at + 1
        return at

    def classes(self):
        return list(self.classes_in(0, len(self.tokens), ""))

    def classes_in(self, begin, end, outer):
        at = begin
        while at < end:
            found = self.class_at(at)
            if found is None:
                at += 1
                continue
            name, opening = found
            closing = self.partners[opening]
            yield self.sized(ClassSize(outer + name, self.text(at), self.tokens[at].line), opening + 1, closing)
            yield from self.classes_in(opening + 1, closing, outer + name + "::")
            at = closing

    def sized(self, size, begin, end):
        own_name = size.name.split("::")[-1]
        is_public = size.key != "class"
        at = begin
        while at < end:
            if self.text(at) in ACCESS and self.text(at + 1) == ":":
                is_public = self.text(at) == "public"
                at += 2
                continue
            at, methods, members = self.declaration(at, end, own_name)
            size.members += members
            if is_public:
                size.public += methods
            else:
                size.private += methods
        return size

    def declaration(self, begin, end, own_name):
        """(index behind it, methods, members) of the declaration at `begin`."""
        at = self.skip_attributes(begin)
        while self.text(at) == "template":
            at = self.skip_requires(self.after_angle(at + 1))
        if self.text(at) in NO_MEMBER:
            return self.statement_end(at, end), 0, 0
        if self.text(at) in CLASS_KEYS and self.text(at + 2) == ";":
            return at + 3, 0, 0  # declared ahead
        found = self.class_at(at)
        if found is not None:
            after = self.after(found[1])
            behind, _, members = self.data_members(after, end)
            return behind, 0, 0 if self.text(after) == ";" else members
        arguments = self.arguments_at(at, end)
        if arguments is None:
            if self.text(at) == ";":
                return at + 1, 0, 0
            return self.data_members(at, end)
        behind, is_written = self.function_end(arguments, end)
        before = self.text(arguments - 1)
        is_operator = any(self.text(index) == "operator" for index in range(at, arguments))
        counts = is_written and (is_operator or (before != own_name and self.text(arguments - 2) != "~"))
        return behind, int(counts), 0

    def skip_requires(self, at):
        """Behind the constraint of a template: a name with arguments, or an expression in parentheses."""
        if self.text(at) != "requires":
            return at
        at += 1
        while True:
            if self.text(at) == "(":
                at = self.after(at)
            else:
                while (self.tokens[at].word or self.text(at) == ":") and self.text(at + 1) in ("<", ":") or self.text(at) == ":":
                    at += 1
                at = self.after_angle(at) if self.text(at) == "<" else at + 1
            if self.text(at) + self.text(at + 1) in ("&&", "||"):
                at += 2
            else:
                return at

    def arguments_at(self, begin, end):
        """The "(" of the parameters of the function that is declared at `begin`, or None for data."""
        at = begin
        while at < end:
            text = self.text(at)
            if text == "operator":
                if self.text(at + 1) == "(":
                    return self.after(at + 1)
                while at < end and self.text(at) != "(":
                    at += 1
                return at
            if text in (";", "=", "{", ":") and not self.is_scope(at):
                return None
            if text == "(":
                if self.text(at - 1) in BEFORE_ARGUMENTS:
                    at = self.after(at)
                    continue
                is_pointer = self.text(at + 1) in ("*", "&") or not self.tokens[at - 1].word
                return None if is_pointer else at
            if text == "[":
                at = self.after(at)
            elif text == "<":
                at = self.after_angle(at)
            else:
                at += 1
        return None

    def is_scope(self, at):
        return self.text(at) == ":" and ":" in (self.text(at - 1), self.text(at + 1))

    def function_end(self, arguments, end):
        """(index behind the function, whether it is neither defaulted nor deleted)."""
        at = self.after(arguments)
        while at < end:
            text = self.text(at)
            if text == ";":
                return at + 1, True
            if text == "=":
                return self.statement_end(at, end), self.text(at + 1) not in ("default", "delete")
            if text == "{":
                return self.after(at), True
            if text == ":" and not self.is_scope(at):
                at = self.initialisers_end(at + 1, end)
            elif text in PAIRS:
                at = self.after(at)
            elif text == "<":
                at = self.after_angle(at)
            else:
                at += 1
        return end, True

    def initialisers_end(self, at, end):
        """At the "{" of the body that follows the initialisers of a constructor."""
        while at < end:
            while at < end and self.text(at) not in ("(", "{"):
                at = self.after_angle(at) if self.text(at) == "<" else at + 1
            at = self.after(at)
            while self.text(at) == ".":
                at += 1
            if self.text(at) != ",":
                return at
            at += 1
        return at

    def data_members(self, begin, end):
        """(index behind it, 0, members) of a declaration of data."""
        members, at, is_static, names = 1, begin, False, 0
        while at < end and self.text(at) != ";":
            text = self.text(at)
            is_static = is_static or text == "static"
            names += self.tokens[at].word
            if text == ",":
                members += 1
            if text == "=":
                at = self.initialiser_end(at + 1, end)
            elif text in PAIRS:
                at = self.after(at)
            elif text == "<":
                at = self.after_angle(at)
            else:
                at += 1
        return at + 1, 0, 0 if is_static or names == 0 else members

    def initialiser_end(self, at, end):
        """At the "," or ";" behind a value. A "<" may compare in it, and a comma is then one of its template arguments."""
        while at < end and self.text(at) not in (",", ";"):
            if self.text(at) in PAIRS:
                at = self.after(at)
            else:
                at = self.after_angle(at) if self.text(at) == "<" else at + 1
        return at

    def statement_end(self, at, end):
        """Behind the ";" of the statement, or behind the body of a friend."""
        is_friend = self.text(at) == "friend"
        while at < end and self.text(at) != ";":
            text = self.text(at)
            is_body = text == "{" and is_friend and self.text(at - 1) != "="
            at = self.after(at) if text in PAIRS else at + 1
            if is_body:
                return at
        return at + 1


def classes_of(text):
    return Source(text).classes()


def sources_of(root, folders=FOLDERS):
    """(path below the root, text) of every source below the folders."""
    for folder in folders:
        for file in sorted((root / folder).rglob("*")):
            if file.suffix in SUFFIXES and file.is_file():
                yield file.relative_to(root), file.read_text(encoding="utf-8")


def class_findings(path, sizes):
    for size in sizes:
        if size.public > MOST_PUBLIC or size.private > MOST_PRIVATE:
            yield (f"{path}:{size.line}: {size.key} {size.name} has {size.public} public and {size.private} other methods; "
                   f"at most {MOST_PUBLIC} and {MOST_PRIVATE}: divide it by what owns what")
        if size.key == "struct" and DEPENDENCIES.search(size.name) and size.members > MOST_MEMBERS:
            yield (f"{path}:{size.line}: struct {size.name} has {size.members} members, at most {MOST_MEMBERS}; "
                   f"give each user the interface that it needs")


def folder_findings(paths):
    counts = {}
    for path in paths:
        if path.suffix == ".cc" and any(path.is_relative_to(folder) for folder in SOURCE_FOLDERS):
            counts[path.parent] = counts.get(path.parent, 0) + 1
    for folder, count in sorted(counts.items()):
        if count > MOST_SOURCES:
            yield f"{folder}:1: {count} sources, at most {MOST_SOURCES}; divide the folder by subject"


def function_findings(texts):
    """`texts`: (path, text) of every source. Names the file that has the most of them."""
    lines = {}
    for path, text in texts:
        if not path.is_relative_to(FUNCTION_FOLDER) or "std::function" not in text:
            continue
        tokens = read_tokens(text)
        for at in range(3, len(tokens)):
            if [token.text for token in tokens[at - 3:at + 1]] == ["std", ":", ":", "function"]:
                lines.setdefault(path, []).append(tokens[at].line)
    count = sum(map(len, lines.values()))
    if count > MOST_FUNCTIONS:
        path = max(lines, key=lambda path: len(lines[path]))
        yield (f"{path}:{lines[path][0]}: {len(lines[path])} of {count} std::function in {FUNCTION_FOLDER}, "
               f"at most {MOST_FUNCTIONS}; use an interface")


def header_findings(paths):
    count = sum(path.suffix == ".h" and path.is_relative_to(HEADER_FOLDER) for path in paths)
    if count > MOST_HEADERS:
        yield f"{HEADER_FOLDER}:1: {count} headers, at most {MOST_HEADERS}; move those of one module to src/, or merge fragments"


def check_tree(root):
    """The findings of a tree, as lines, and the numbers of files and classes."""
    sources = list(sources_of(root))
    paths = [path for path, _ in sources]
    findings, classes = [], 0
    for path, text in sources:
        sizes = classes_of(text)
        classes += len(sizes)
        findings += class_findings(path, sizes)
    findings += [*folder_findings(paths), *function_findings(sources), *header_findings(paths)]
    return findings, len(sources), classes


def lines_of_classes(root):
    sizes = [(size, path) for path, text in sources_of(root) for size in classes_of(text)]
    sizes.sort(key=lambda entry: (-(entry[0].public + entry[0].private), entry[0].name))
    for size, path in sizes:
        yield f"{path}:{size.line}: {size.key} {size.name}: {size.public} public, {size.private} other, {size.members} members"


class SelfTest(unittest.TestCase):
    def sizes(self, text):
        return {size.name: (size.public, size.private, size.members) for size in classes_of(text)}

    def test_methods_and_members(self):
        self.assertEqual(self.sizes("""
class Queue final : public Base<int, Other>, private detail::Lock {
  void hidden();
 public:
  explicit Queue(int size) : Base{size}, size_(size), on_end_{[](int) { return 1; }} { start(); }
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = default;
  ~Queue() override { stop(); }
  [[nodiscard]] int size() const { if (a < b) { return size_; } return 0; }
  template <typename T, int N = 3>
  std::map<T, std::vector<int>> all(std::function<void(int)> call = {}, Time at = Time{}) const;
  virtual void run() = 0;
  static Queue make(int);
  auto begin() noexcept(noexcept(f())) -> std::map<int, int>::iterator { return {}; }
  bool operator==(const Queue&) const;
  void operator()(int) {}
  explicit operator bool() const { return true; }
  friend bool operator<(const Queue& a, const Queue& b) { return a.size_ < b.size_; }
  friend class Reader;
  using Call = std::function<void(int)>;
  enum class Kind : int { one, two };
  static_assert(sizeof(int) == 4);
 protected:
  void shielded();
 private:
  void also(int a), *other(int);
  static constexpr int kMost = f(3) * (2 + 1);
  std::function<void(int)> call_;
  int size_ = g(1, 2), more_{3};
  void (*handler_)(int) = nullptr;
  char text_[sizeof(int)];
  int bits_ : 3;
};
"""), {"Queue": (8, 3, 6)})

    def test_nested_and_local_classes(self):
        self.assertEqual(self.sizes("""
struct Daemon::Impl : Base {
  struct Entry { int a = 0, b = 0; int sum() const { return a + b; } };
  struct { int inner; } pair;
  class Forward;
  struct stat information{};
  std::vector<Entry> entries;
  void run() { struct Local { void call(); }; }
};
"""), {"Daemon::Impl": (1, 0, 3), "Daemon::Impl::Entry": (1, 0, 2), "Daemon::Impl::(unnamed)": (0, 0, 1),
       "Daemon::Impl::Local": (1, 0, 0)})

    def test_what_is_no_class(self):
        self.assertEqual(self.sizes("""
// class A { void f(); };
template <class T> void run(T t) {}
enum class Kind { one };
class Later;
struct stat status() { return {}; }
const char* text = "class B { void f(); };";
"""), {})

    def test_templates_and_constraints(self):
        self.assertEqual(self.sizes("""
template <typename T>
  requires std::is_integral_v<T> && (sizeof(T) > 1)
class Box<T*> {
 public:
  template <typename U>
    requires(!std::is_same_v<U, T>)
  Box(U value) : value_(value) {}
  template <typename U>
    requires std::is_integral_v<U>
  U as() const;
  decltype(f(1)) made() const;
  alignas(64) int place;
  std::array<int, (3 > 2 ? 1 : 0)> numbers{};
};
"""), {"Box": (2, 0, 2)})

    def findings(self, files):
        with tempfile.TemporaryDirectory() as folder:
            for path, text in files.items():
                target = Path(folder) / path
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_text(text, encoding="utf-8")
            return check_tree(Path(folder))[0]

    def test_wide_classes_are_found(self):
        public = "struct A {\n" + "void f();\n" * MOST_PUBLIC
        private = "class B {\n" + "void f();\n" * MOST_PRIVATE
        self.assertEqual(self.findings({"src/a.h": public + "};", "src/b.cc": private + "};"}), [])
        found = self.findings({"src/a.h": public + "void g();};", "src/b.cc": "\n" + private + "void g();};"})
        self.assertEqual([line.split(";")[0] for line in found],
                         ["src/a.h:1: struct A has 26 public and 0 other methods",
                          "src/b.cc:2: class B has 0 public and 31 other methods"])

    def test_structs_of_dependencies_are_found(self):
        text = "struct {} {{\n" + "int& a;\n" * MOST_MEMBERS + "{}}};"
        self.assertEqual(self.findings({"src/a.h": text.format("SessionOwner", ""), "src/b.h": text.format("Row", "int b;")}), [])
        self.assertEqual(len(self.findings({"src/a.h": text.format("SessionOwner", "int b;")})), 1)
        self.assertEqual(len(self.findings({"src/a.h": "class A { " + text.format("Parts", "int b;") + "};"})), 1)

    def test_large_folders_are_found(self):
        def files(folder, count):
            return {f"{folder}/{number}.cc": "" for number in range(count)}

        self.assertEqual(self.findings({**files("src/serve", MOST_SOURCES), **files("src/serve/a", MOST_SOURCES)}), [])
        self.assertEqual(self.findings(files("src/other", MOST_SOURCES + 1)), [])
        self.assertEqual(len(self.findings(files("src/frontend/a", MOST_SOURCES + 1))), 1)

    def test_functions_are_counted(self):
        text = "std::function<void()> f;\n" * MOST_FUNCTIONS
        self.assertEqual(self.findings({"src/frontend/a.h": text + "// std::function<void()> g;"}), [])
        found = self.findings({"src/frontend/a.h": "\n" + text, "src/frontend/a/b.cc": "std::function<int()> g;"})
        self.assertEqual(len(found), 1)
        self.assertTrue(found[0].startswith("src/frontend/a.h:2: 40 of 41 std::function"))

    def test_public_headers_are_counted(self):
        files = {f"include/gpulet/a/{number}.h": "" for number in range(MOST_HEADERS)}
        self.assertEqual(self.findings({**files, "src/a.h": ""}), [])
        self.assertEqual(len(self.findings({**files, "include/gpulet/b.h": ""})), 1)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parent.parent)
    parser.add_argument("--classes", action="store_true")
    parser.add_argument("--self-test", action="store_true")
    options = parser.parse_args()
    if options.self_test:
        suite = unittest.defaultTestLoader.loadTestsFromTestCase(SelfTest)
        return 0 if unittest.TextTestRunner().run(suite).wasSuccessful() else 1
    if options.classes:
        print("\n".join(lines_of_classes(options.root)))
        return 0
    findings, files, classes = check_tree(options.root)
    if files == 0:
        print(f"{options.root}: no sources below include/ or src/; check --root")
        return 2
    print("\n".join(findings + [f"check_sizes: {files} files, {classes} classes, {len(findings)} findings"]))
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
