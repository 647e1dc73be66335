"""Each request handler has a unit test that opens no socket.

Owns: the rule, on the syntax trees of broker/*/api and of its mirror in tests/. A test counts for a handler
when it, or a helper of its module that it uses, names the handler's class or its request's, and when none of
its fixtures is a running broker, a client of one, or a cluster. Does not: judge the assertions of a test.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from tests.tidy import ROOT, tracked_files

SOCKET_FIXTURES = frozenset(
    {"broker", "client", "cluster", "running", "served", "start_broker", "start_cluster"}
)
"""Fixtures of tests that talk to a broker over TCP; one that is annotated as a Fake is none of them."""
Function = ast.FunctionDef | ast.AsyncFunctionDef
BASE = "RequestHandler"


def names_in(node: ast.AST) -> set[str]:
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)} | {
        each.attr for each in ast.walk(node) if isinstance(each, ast.Attribute)
    }


def handlers_of(tree: ast.Module) -> Iterator[str]:
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and any(BASE in names_in(base) for base in node.bases):
            yield node.name


def opens_socket(test: Function) -> bool:
    return any(
        each.arg in SOCKET_FIXTURES and "Fake" not in ast.unparse(each.annotation or ast.Constant(""))
        for each in (*test.args.args, *test.args.kwonlyargs)
    )


def socketless_names(tree: ast.Module) -> set[str]:
    """The names in tests without a socket, and in what these use of their own module."""
    helpers: dict[str, set[str]] = {}
    reached: set[str] = set()
    for node in tree.body:
        if isinstance(node, Function) and node.name.startswith("test_"):
            if not opens_socket(node):
                reached |= names_in(node)
        elif isinstance(node, Function | ast.ClassDef):
            helpers[node.name] = names_in(node)
        elif isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            helpers |= {name: names_in(node.value) for target in targets for name in names_in(target)}
    pending = list(reached)
    while pending:
        added = helpers.pop(pending.pop(), set()) - reached
        reached |= added
        pending += added
    return reached


def untested(handlers: Mapping[str, str], tests: Mapping[str, str]) -> list[str]:
    """The handlers without such a test; both arguments map paths to sources."""
    covered: dict[str, set[str]] = {}
    for path, source in tests.items():
        covered.setdefault(path.split("/")[2], set()).update(socketless_names(ast.parse(source)))
    return [
        f"{path}: {name}"
        for path, source in sorted(handlers.items())
        for name in handlers_of(ast.parse(source))
        if not {name, f"{name}Request"} & covered.get(path.split("/")[1], set())
    ]


def sources(*patterns: str) -> dict[str, str]:
    """The tracked files that match one of these patterns, by path."""
    names = {path: path.relative_to(ROOT) for path in tracked_files(ROOT)}
    return {
        name.as_posix(): path.read_text(encoding="utf-8")
        for path, name in names.items()
        if any(name.match(pattern) for pattern in patterns)
    }


def test_each_handler_has_a_unit_test_without_a_socket() -> None:
    handlers = sources("broker/*/api/*.py")
    assert sum(len(list(handlers_of(ast.parse(source)))) for source in handlers.values()) > 50
    assert untested(handlers, sources("tests/broker/*/api/test_*.py", "tests/broker/*/test_*.py")) == []


HANDLER = {"broker/room/api/ping.py": "class Ping(RequestHandler):\n    pass\n"}


def test_a_test_that_needs_a_broker_does_not_count() -> None:
    def missing(test: str, room: str = "room") -> bool:
        return untested(HANDLER, {f"tests/broker/{room}/api/test_ping.py": test}) != []

    assert not missing("def test_it(caller):\n    caller.call(PingRequest())\n")
    assert not missing("def pinged():\n    return Ping()\ndef test_it():\n    pinged()\n")
    assert not missing("REQUEST = api.PingRequest()\ndef test_it():\n    use(REQUEST)\n")
    assert missing("def test_it(caller):\n    pass\n")
    assert missing("def test_it(client):\n    client.call(PingRequest())\n")
    assert missing("def unused():\n    return Ping()\ndef test_it():\n    pass\n")
    assert missing("def test_it(caller):\n    caller.call(PingRequest())\n", "another")
