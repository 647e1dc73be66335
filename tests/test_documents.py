"""What the documents tell a user to type is understood: commands, their options, settings, modules."""

from __future__ import annotations

import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from compat_tests.targets import ROOT
from lockstep.broker.metadata.api.api_versions import FEATURE_LEVELS
from lockstep.broker.settings.config import PROPERTIES
from lockstep.broker.settings.topic_config import TOPIC_PROPERTIES
from lockstep.build_info import VERSION
from lockstep.cli import parser
from lockstep.protocol.client_protocol import CLIENT_VERSION
from tests.support.cases import each_case

GENERATED = ("benchmarks.md", "compatibility.md")
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "ARCHITECTURE.md")),
    *(page for page in sorted((ROOT / "docs").glob("*.md")) if page.name not in GENERATED),
]
CODE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`([^`\n]+)`")
PATH = re.compile(
    r"`((?!bench/results)(?:bench|broker|compat_tests|lockstep|model|player|protocol|requirements|spark_connector|storage|tests)"
    r"/[\w./-]+)[^`\n]*`"
)
MODULE = re.compile(r"python -m ([\w.]+)")
PLAIN_PAGES = [
    page
    for page in PAGES
    if page.name not in ("ARCHITECTURE.md", "disk_format.md", "glossary.md", "storage_rules.md", "waltz.md")
]
PRIVATE_WORDS = re.compile(
    r"\b(told|somebody|hears?|rot|rotten|lagging|lacks|gives up|given up|goes on|holds? up|for ever"
    r"|made anew|lane|stand-in|heir|complaint)\b"
)
"""Words that docs/glossary.md replaces; in code they stand between backquotes."""
ENDS = frozenset(";&|<>()")
"""Of a command, within a line of shell."""
BEFORE = frozenset({"until", "while", "if", "do", "then", "!"})
"""What may stand before a command."""
MAX_ARCHITECTURE_LINES = 150
MAX_ARCHITECTURE_WORDS = 1_800
MAX_ENTRY_CHARACTERS = 160
"""Of an entry of the changelog."""
SETTINGS_IN = {"serve": "set", "topics": "config"}
"""Which option of a command has settings."""


def commands(shell: str) -> Iterator[list[str]]:
    """The words of each `lockstep` command; brackets around what may be left out go."""
    for line in shell.replace("\\\n", " ").splitlines():
        if "lockstep " not in line:
            continue
        words = shlex.shlex(re.sub(r"[][]| \.\.\.", "", line), posix=True, punctuation_chars=True)
        words.whitespace_split = True
        command: list[str] = []
        for word in [*words, ";"]:
            if not set(word) <= ENDS:
                command.append(word)
                continue
            while command and command[0] in BEFORE:
                del command[0]
            if command[:1] == ["lockstep"] and len(command) > 1:
                yield command[1:]
            command = []


def settings_in(words: list[str]) -> Iterator[str]:
    """Names that the command sets. Raises SystemExit for a command that is not understood."""
    options = parser().parse_args(words)
    if words[0] == "configs":
        yield from (name for name, _ in getattr(options, "setting", ()))
        if "=" in options.name:  # of all brokers
            yield options.name.partition("=")[0]
    elif words[0] in SETTINGS_IN:
        given = getattr(options, SETTINGS_IN[words[0]], None) or ()
        yield from (each[0] if isinstance(each, tuple) else each.partition("=")[0] for each in given)


def is_there(name: str) -> bool:
    """Is `lockstep.…` a setting, a feature, a module, or something in one?"""
    if name in PROPERTIES or name in TOPIC_PROPERTIES or name in FEATURE_LEVELS:
        return True
    path = ROOT
    parts = name.split(".")
    for number, part in enumerate(parts):
        inner = parts[number:]
        if (path / part).is_dir():
            path /= part
        elif (path / f"{part}.py").exists():
            text = (path / f"{part}.py").read_text()  # defined there, or imported
            return all(re.search(rf"\b{name}\b", text) for name in inner[1:])
        else:
            exported = (path / "__init__.py").read_text()
            return len(inner) == 1 and f'"{part}"' in exported
    return True


@each_case("page", PAGES, ids=lambda page: page.name)
def test_commands_are_understood(page: Path) -> None:
    for code in CODE.finditer(page.read_text()):
        for words in commands(code[2]) if code[1] in ("", "sh") else ():
            assert {*settings_in(words)} <= {*TOPIC_PROPERTIES, *PROPERTIES, "key"}, words


@each_case("page", PAGES, ids=lambda page: page.name)
def test_modules_that_are_run_are_there(page: Path) -> None:
    for found in MODULE.finditer(page.read_text()):
        path = ROOT / found[1].replace(".", "/")
        is_ours = (ROOT / found[1].partition(".")[0]).exists()
        assert not is_ours or path.with_suffix(".py").exists() or (path / "__main__.py").exists(), found[0]


@each_case("page", PAGES, ids=lambda page: page.name)
def test_paths_are_there(page: Path) -> None:
    for found in PATH.finditer(page.read_text()):
        assert (ROOT / found[1]).exists() or (ROOT / "storage" / found[1]).exists(), found[1]


@each_case("page", PAGES, ids=lambda page: page.name)
def test_names_that_begin_with_lockstep_are_there(page: Path) -> None:
    for found in INLINE.finditer(page.read_text()):
        name = re.fullmatch(r"(lockstep(?:\.\w+)+)(?:\(.*\)|=.*)?", found[1])
        assert name is None or is_there(name[1]), found[1]


@each_case("page", PLAIN_PAGES, ids=lambda page: page.name)
def test_pages_for_users_have_no_private_words(page: Path) -> None:
    prose = re.sub(r"`[^`\n]+`|\]\([^)]+\)", "", CODE.sub("", page.read_text()))
    found = [line for line in prose.splitlines() if PRIVATE_WORDS.search(line)]
    assert found == []


def test_the_architecture_is_short() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    assert len(text.splitlines()) <= MAX_ARCHITECTURE_LINES
    assert len(text.split()) <= MAX_ARCHITECTURE_WORDS


def test_the_changelog_has_one_line_an_entry() -> None:
    lines = (ROOT / "CHANGELOG.md").read_text().partition("\n## ")[2].splitlines()
    assert [line for line in lines if len(line) > MAX_ENTRY_CHARACTERS] == []
    assert [line for line in lines if line.startswith(" ")] == []


def test_the_newest_version_of_the_changelog_is_the_products() -> None:
    (newest, *_) = re.findall(r"^## (\d\S+) - ", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert newest == project["version"] == VERSION == CLIENT_VERSION


def test_every_page_is_in_the_index() -> None:
    index = (ROOT / "docs" / "README.md").read_text()
    for page in sorted((ROOT / "docs").glob("*.md")):
        assert page.name == "README.md" or f"({page.name})" in index, page.name


def test_what_is_not_there_is_seen() -> None:
    shell = "echo a | lockstep produce t -H a=b > x  # so\nuntil lockstep cluster status; do :; done"
    assert list(commands(shell)) == [
        ["produce", "t", "-H", "a=b"],
        ["cluster", "status"],
    ]
    with pytest.raises(SystemExit):
        list(settings_in(["topics", "create", "t", "--confg", "a=b"]))
    assert list(settings_in(["serve", "--set", "lockstep.metric=x:1"])) == ["lockstep.metric"]
    assert not is_there("lockstep.metric")
    assert not is_there("lockstep.testing.brokers") and is_there("lockstep.testing.broker")
