"""The two pages about Waltz name code, tests and commands, and everything that Waltz has: they exist."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from lockstep.cli import parser
from tests.documents import has
from tests.storage.raft.test_recovery import CASES

ROOT = Path(__file__).resolve().parents[1]
PAGE = "".join((ROOT / "docs" / name).read_text() for name in ("waltz.md", "evidence/waltz.md"))
NAMED = re.compile(
    r"`((?:bench|broker|compat_tests|lockstep|protocol|storage|tests)/[\w./]+)(?:::([\w.]+))?`"
)
MODULE = re.compile(r"`python -m ([\w.]+)[^`]*`")
COMMAND = re.compile(r"`lockstep ((?:[a-z]+ ?)*)(-[^`]*)?`")
CLASS_OF_TESTS = re.compile(r"^### ([^\n]+) \((\d+)\)\n(.*?)(?=^##|\Z)", re.MULTILINE | re.DOTALL)
ROW = re.compile(r"^\| (?!Waltz \||---)(.+?) \| (.+) \|$", re.MULTILINE)


def is_command(words: str, options: str) -> bool:
    """Is there such a command, with such options?"""
    at = parser()
    for word in words.split():
        below = [each for each in at._actions if isinstance(each, argparse._SubParsersAction)]
        if not below or word not in below[0].choices:
            return False
        at = below[0].choices[word]
    return all(each in at.format_help() for each in re.findall(r"(?<!\S)--?[a-z][a-z-]*", options))


def missing(text: str) -> list[str]:
    """What a text names and nothing has."""
    found = []
    for file, name in NAMED.findall(text):
        path = ROOT / file
        if not path.is_file() or (name and not has(path, name)):
            found.append(f"{file}::{name}")
    for module in MODULE.findall(text):
        path = ROOT / module.replace(".", "/")
        if not (path.with_suffix(".py").is_file() or (path / "__main__.py").is_file()):
            found.append(f"python -m {module}")
    found += [
        f"lockstep {words}{options}"
        for words, options in COMMAND.findall(text)
        if not is_command(words, options)
    ]
    return found


def section(title: str) -> str:
    return PAGE.partition(f"## {title}\n")[2].partition("\n## ")[0]


def test_every_name_exists() -> None:
    assert len(NAMED.findall(PAGE)) > 250 and len(COMMAND.findall(PAGE)) > 30
    assert missing(PAGE) == []


def test_a_name_that_nothing_has_is_seen() -> None:
    wrong = [
        "tests/test_waltz_page.py::test_of_nothing",
        "lockstep/transactions/client.py::TransactionClient.fly",
        "storage/nothing.py",
        "python -m tests.nothing",
        "lockstep cluster fly",
        "lockstep log dump --fly",
    ]
    right = ["tests/test_waltz_page.py::missing", "lockstep log dump --records", "lockstep cluster status"]
    found = missing(" ".join(f"`{each}`" for each in wrong + right))
    assert [each.removesuffix("::") for each in found] == wrong


def test_every_test_of_waltz_has_its_row() -> None:
    total = 0
    for title, number, text in CLASS_OF_TESTS.findall(PAGE):
        names = [name for row, _ in ROW.findall(text) for name in row.split(", ")]
        assert len(names) == len(set(names)) == int(number), title
        total += len(names)
        if title == "RecoveryManagerTest":
            assert set(CASES) < set(names)
    assert total == 261 + 14


def test_every_message_and_command_of_waltz_has_its_row() -> None:
    def numbers(text: str) -> list[int]:
        return [
            int(each)
            for row, _ in ROW.findall(text)
            for each in re.findall(r"\b(\d+)\b", row.split(" | ")[0])
        ]

    servers, administration = section("Messages between server and storage").split("admin port")
    assert numbers(section("Messages between client and server")) == list(range(23))
    assert numbers(servers) == list(range(1, 19))
    assert numbers(administration) == [each for each in range(1, 15) if each != 5]
    commands = [name for row, _ in ROW.findall(section("Tools")) for name in row.split(", ")]
    assert len(commands) == len(set(commands)) == 32
