"""A ratchet on the words of names and docstrings (`python -m tests.vocabulary`), a part of `make check`.

Owns: five figures for each package; `tests/vocabulary.toml` has the numbers that they have reached. A figure
may only fall: above its number the check fails and lists the places, below it `--update` lowers the number.
`python -m tests.vocabulary broker` lists every place in one package. The words to use: `docs/glossary.md`.
Does not: sizes and bans (`tests/tidy.py`); say that a word is the right one, which takes a reader.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests import tidy
from tests.tidy import ROOT

KEPT = ROOT / "tests" / "vocabulary.toml"
PRODUCT = tuple(folder.rstrip("/") for folder in tidy.PRODUCT)
PACKAGES = (*PRODUCT, "bench")

PRIVATE_WORD = re.compile(
    "asked|begun|bury|elsewhere|ended|gone|guilty|heard|hears|held|hurry|judged|known|lacks|left|moved|nobody"
    "|plausible|poke|said|says?|settled|shown|somebody|standing|starve|taken|told|tried|tries|trouble|wanted"
    "|whoever"
)
"""Words that this project used for what Kafka, Raft or databases have named; each hides what is meant."""

NO_PARTICIPLE = re.compile("feed|listen|need|open|ping|ring|seed|setting|string|token")
"""Verbs and nouns that only look like participles."""

RELATIVE_WORD = re.compile(
    "As|How|Nobody|Of|Somebody|Those|What|When|Where|Whether|Which|Who|Whoever|Whom|Whose"
)
"""No docstring begins with one: a sentence has a named subject and a plain verb."""

KAFKA_NAMED = re.compile("protocol/messages/|broker/[a-z]+/api/")
"""The files of messages and of handlers: their classes are named as Kafka names its APIs."""

STATEMENTS = (ast.stmt, ast.ExceptHandler, ast.match_case)
"""The nodes that may hold a definition: no expression is looked into, which keeps the check fast."""

FIGURES = {
    "private_words": "a name with a private word: use the one of docs/glossary.md",
    "participles": "a function named by a lone participle: name it by a verb and an object",
    "relative_docstrings": "a docstring that begins with a relative word: name the subject",
    "ing_modules": "a module named by an -ing word: a noun can be used in a sentence as it is",
    "shared_class_names": "a public class whose name another class of the product has too",
}
"""The figures, and their wording in the findings."""

Places = dict[str, dict[str, list[str]]]
"""By package and figure: the places, each as path:line and name."""


def places(sources: Mapping[str, str]) -> Places:
    """Every place that counts; `sources` holds the text of each file by its path from the root."""
    found: Places = {package: {figure: [] for figure in FIGURES} for package in PACKAGES}
    classes: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for name, text in sorted(sources.items()):
        package = name.split("/")[0]
        here = found[package]
        if name.endswith("ing.py"):
            here["ing_modules"].append(name)
        tree = ast.parse(text, name)
        for figure, line, word in _within(tree):
            here[figure].append(f"{name}:{line} {word}")
        if package in PRODUCT and not KAFKA_NAMED.match(name):
            for node in tree.body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    classes[node.name].append((package, f"{name}:{node.lineno} {node.name}"))
    for twice in classes.values():
        for package, place in twice if len(twice) > 1 else ():
            found[package]["shared_class_names"].append(place)
    return found


def _within(tree: ast.Module) -> Iterator[tuple[str, int, str]]:
    """Figure, line and name of each place in one file."""
    pending: list[ast.AST] = [tree]
    while pending:
        node = pending.pop()
        pending += (child for child in ast.iter_child_nodes(node) if isinstance(child, STATEMENTS))
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        name, line = ("the module", 1) if isinstance(node, ast.Module) else (node.name, node.lineno)
        first = re.search(r"[A-Za-z']+", ast.get_docstring(node, clean=False) or "")
        if first and RELATIVE_WORD.fullmatch(first.group()):
            yield "relative_docstrings", line, f"{name}: {first.group()} ..."
        if isinstance(node, ast.Module) or name.startswith("__"):
            continue
        words = [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)]
        if any(map(PRIVATE_WORD.fullmatch, words)):
            yield "private_words", line, name
        if not isinstance(node, ast.ClassDef) and len(words) == 1 and _is_participle(words[0]):
            yield "participles", line, name


def _is_participle(word: str) -> bool:
    return word.endswith(("ed", "en", "ing")) and not NO_PARTICIPLE.fullmatch(word)


def findings(found: Places, kept: Mapping[str, Mapping[str, int]]) -> tuple[list[str], list[str]]:
    """The figures above their numbers, with their places; and those below, whose numbers can be lowered."""
    above: list[str] = []
    below: list[str] = []
    for package, figures in found.items():
        for figure, where in figures.items():
            most = kept.get(package, {}).get(figure, 0)
            if len(where) > most:
                above.append(f"{package}: {len(where)} times {FIGURES[figure]}; at most {most}")
                above += (f"  {place}" for place in where)
            elif len(where) < most:
                below.append(f"{package}: {figure} fell to {len(where)} from {most}")
    return above, below


def lowered(found: Places, kept: Mapping[str, Mapping[str, int]]) -> str:
    """The text of `vocabulary.toml` with each number lowered to what is found, none raised."""
    text = "# Made by `python -m tests.vocabulary --update`, which only lowers a number.\n"
    for package, figures in found.items():
        text += f"\n[{package}]\n"
        for figure, where in figures.items():
            most = kept.get(package, {}).get(figure, 0)
            text += f"{figure} = {min(len(where), most)}\n"
    return text


def tracked_sources(root: Path = ROOT) -> dict[str, str]:
    """The Python files of the packages, but those that protoc made."""
    paths = {path.relative_to(root): path for path in tidy.tracked_files(root) if path.suffix == ".py"}
    return {
        name.as_posix(): path.read_text(encoding="utf-8")
        for name, path in paths.items()
        if name.parts[0] in PACKAGES and "generated" not in name.parts
    }


def main(arguments: list[str] | None = None, root: Path = ROOT, numbers: Path = KEPT) -> int:
    """Prints what it found; the exit status is 1 when a figure has risen."""
    parser = argparse.ArgumentParser(prog="python -m tests.vocabulary", description=__doc__)
    parser.add_argument(
        "package", nargs="*", choices=[*PACKAGES, []], help="list every place in these packages"
    )
    parser.add_argument("--update", action="store_true", help="lower the numbers to what is reached")
    options = parser.parse_args(arguments)
    found = places(tracked_sources(root))
    kept = tomllib.loads(numbers.read_text(encoding="utf-8"))
    for package in options.package:
        for figure, where in found[package].items():
            print(f"{package}: {figure}: {len(where)}", *where, sep="\n  ")
    above, below = findings(found, kept)
    if options.update:
        numbers.write_text(lowered(found, kept), encoding="utf-8")
    elif below:
        print(*below, "Keep it: .venv/bin/python -m tests.vocabulary --update", sep="\n")
    if above:
        print(*above, sep="\n")
    return 1 if above else 0


if __name__ == "__main__":
    sys.exit(main())
