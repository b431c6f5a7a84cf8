#!/usr/bin/env python3
"""Finds lambdas and brace-initialisers between co_await and the end of its full expression.

g++ 12 destroys such a temporary twice (a closure or an aggregate with a non-trivial destructor): a double free at run
time, without a warning. The rule is syntactic and applies to all types. Name the value first:

    Request request{...};                       // not: co_await channel.send(Request{...});
    co_await channel.send(std::move(request));

  scripts/check_await.py [--root DIR]     check include/, src/, tests/ and bench/, print every finding, exit 1 if any
  scripts/check_await.py --self-test      test the rule
"""
import argparse
import re
import sys
from pathlib import Path

FOLDERS = ("include", "src", "tests", "bench")
SUFFIXES = {".h", ".cc"}

TOKEN = re.compile(
    r"""
    (?P<skip>//(?:\\\n|[^\n])*|/\*.*?\*/|\s+)
  | (?P<raw>(?:u8|[uUL])?R"(?P<mark>[^\s()\\]{0,16})\(.*?\)(?P=mark)")
  | (?P<string>(?:u8|[uUL])?"(?:\\.|[^"\\\n])*")
  | (?P<number>\.?\d(?:'?[\w.]|(?<=[eEpP])[+-])*)
  | (?P<char>(?:u8|[uUL])?'(?:\\.|[^'\\\n])+')
  | (?P<word>[A-Za-z_]\w*)
  | (?P<other>.)
    """,
    re.X | re.S,
)
DIRECTIVE = re.compile(r"^[ \t]*#(?:\\\n|[^\n])*", re.M)
MACRO = re.compile(r"^([ \t]*#[ \t]*define[ \t]+\w+(?:\([^)\n]*\))?)((?:\\\n|[^\n])*)", re.M)
OPEN, CLOSE = "([{", ")]}"
CONTROL = {"if", "while", "for", "switch", "catch", "constexpr"}
# A `[` after one of these words begins a lambda; after any other word it is a subscript.
BEFORE_LAMBDA = {"return", "co_return", "co_await", "co_yield", "else", "do", "case", "throw", "and", "or", "not", "in"}


def without_directives(text):
    """Blanks preprocessor lines, but keeps each macro body as a statement."""

    def keep_body(match):
        head = re.sub(r"[^\n]", " ", match.group(1))
        return head + match.group(2).replace("\\\n", " \n") + " ;"

    def blank(match):
        return re.sub(r"[^\n]", " ", match.group(0))

    return DIRECTIVE.sub(blank, MACRO.sub(keep_body, text))


def tokens_of(text):
    """(kind, text, line) of every token that is code."""
    line, result = 1, []
    for match in TOKEN.finditer(without_directives(text)):
        kind = match.lastgroup if match.lastgroup != "mark" else "raw"
        if kind != "skip":
            result.append((kind, match.group(0), line))
        line += match.group(0).count("\n")
    return result


def control_parentheses(tokens):
    """Indices of the `(` that belong to if, while, for, switch: their `)` ends the full expression inside."""
    return {
        index
        for index, (_, text, _) in enumerate(tokens)
        if text == "(" and index > 0 and tokens[index - 1][0] == "word" and tokens[index - 1][1] in CONTROL
    }


def begins_lambda(tokens, index):
    kind, text, _ = tokens[index - 1]
    if kind == "word":
        return text in BEFORE_LAMBDA
    return text not in (")", "]", "}") and kind not in ("string", "raw", "number")


def check_text(text):
    """The (line, finding) pairs of a source."""
    tokens = tokens_of(text)
    control = control_parentheses(tokens)
    opened = []  # indices of the brackets that are open at this token
    findings = []
    for index, (kind, word, line) in enumerate(tokens):
        if kind == "word" and word == "co_await" and (index == 0 or tokens[index - 1][1] != "operator"):
            problem = scan_expression(tokens, index, list(opened), control)
            if problem:
                findings.append((line, problem))
        if word in OPEN and kind == "other":
            opened.append(index)
        elif word in CLOSE and kind == "other" and opened:
            opened.pop()
    return findings


def scan_expression(tokens, start, opened, control):
    """The finding between the co_await at `start` and the end of its full expression, or None.

    `opened`: the brackets around the co_await. The expression ends at a `;` that is in none of its own brackets, at
    the `)` of an if, while, for or switch, or where the block or initialiser around it closes. The `)` of a call
    around it does not end it: temporaries among the later arguments live across the suspension too.
    """
    outside = len(opened)
    for index in range(start + 1, len(tokens)):
        kind, text, line = tokens[index]
        if kind != "other":
            continue
        if text == ";" and len(opened) <= outside:
            return None
        if text == "{":
            return f"a brace-initialiser (line {line}) inside a co_await expression; give it a name before"
        if text == "[" and begins_lambda(tokens, index):
            return f"a lambda (line {line}) inside a co_await expression; give it a name before"
        if text in OPEN:
            opened.append(index)
        elif text in CLOSE:
            if not opened:
                return None
            bracket = opened.pop()
            outside = min(outside, len(opened))
            if bracket < start and (text == "}" or bracket in control):
                return None
    return None


SELF_TESTS = [
    (False, "co_await channel.send(std::move(request));"),
    (False, "auto reply = co_await f(a, b[3], g(c)[d]); Request r{1, 2};"),
    (False, "if (co_await f(x)) { g(); }"),
    (False, "while (!co_await f(x)) { g(); }"),
    (False, "for (auto& x : co_await f()) { g(x); }"),
    (False, "switch (co_await f()) { case 1: break; }"),
    (False, "if (auto n = co_await f(); n > 0) { g(); }"),
    (False, "awaitable<int> f() { co_return co_await g(); } struct X { int a; };"),
    (False, "Outcome outcome{co_await f(), 1}; Other other{2};"),
    (False, "auto work = [s]() -> awaitable<int> { co_return co_await g(s); }; co_spawn(ex, work, done);"),
    (False, "// co_await f(Request{1});\n/* co_await f({}) */ g();"),
    (False, 'log("co_await f({})"); log(R"(co_await f(X{1}))");'),
    (False, "auto operator co_await(Event& e) { return Awaiter{e}; }"),
    (False, "co_await wait(1'000'000); char c = '{';"),
    (False, "#define WAIT(x) co_await (x)\nstruct X { int a; };"),
    (True, "co_await channel.send(Request{1, 2});"),
    (True, "co_await f({.a = 1});"),
    (True, "co_await f(std::array<std::string, 2>{a, b});"),
    (True, "co_await f([s] { return s; });"),
    (True, "co_await co_spawn(ex, [s]() -> awaitable<int> { co_return 1; }, use_awaitable);"),
    (True, "auto x = co_await [s]() -> awaitable<int> { co_return 1; }();"),
    (True, "if (co_await f(Request{1})) { g(); }"),
    (True, "g(co_await f(x), Request{1});"),
    (True, "auto n = 1 +\n  co_await f(\n    a,\n    Request{1});"),
    (True, "co_return co_await f(std::make_optional(Agg{1}));"),
    (True, "#define SEND(x) co_await f(Request{x})\nint y;"),
    (True, "char c = '\"'; co_await f({1}); char d = '\"';"),
]


def self_test():
    failed = 0
    for expected, text in SELF_TESTS:
        if bool(check_text(text)) != expected:
            failed += 1
            print(f"self-test: {'not found' if expected else 'found by mistake'}: {text}")
    print(f"check_await self-test: {len(SELF_TESTS) - failed} passed, {failed} failed")
    return 1 if failed else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parent.parent)
    parser.add_argument("--self-test", action="store_true")
    options = parser.parse_args()
    if options.self_test:
        return self_test()
    seen, found = 0, 0
    for folder in FOLDERS:
        for file in sorted((options.root / folder).rglob("*")):
            if file.suffix in SUFFIXES and file.is_file():
                seen += 1
                for line, what in check_text(file.read_text(encoding="utf-8")):
                    found += 1
                    print(f"{file.relative_to(options.root)}:{line}: {what}")
    if seen == 0:
        print(f"{options.root}: no source found; check --root")
        return 2
    print(f"check_await: {seen} files, {found} findings")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
