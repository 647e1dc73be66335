"""The tree keeps the numbers of `vocabulary.toml`, each figure counts a planted place, numbers only fall."""

from __future__ import annotations

import subprocess
import tomllib
from pathlib import Path

import pytest

from tests import vocabulary
from tests.support.cases import each_case


def counted(text: str, name: str = "broker/m.py") -> dict[str, int]:
    """The figures of one file that are not zero."""
    figures = vocabulary.places({name: text})[name.split("/")[0]]
    return {figure: len(where) for figure, where in figures.items() if where}


@pytest.mark.tier(name="rest")  # `make test` runs `make check` first
def test_the_tree_is_not_above_its_numbers() -> None:
    assert vocabulary.main([]) == 0


@each_case(
    ("text", "expected"),
    [
        ("def f_told(): ...", {"private_words": 1}),
        ("class HeldBatch: ...", {"private_words": 1}),
        ("async def told(): ...", {"private_words": 1}),
        ("class C:\n    def settled(self): ...", {"private_words": 1, "participles": 1}),
        ("if x:\n    try:\n        pass\n    except E:\n        def joined(): ...", {"participles": 1}),
        ("match x:\n    case 1:\n        def joining(): ...", {"participles": 1}),
        ('def f():\n    """Whether it is."""', {"relative_docstrings": 1}),
        ('"""\n    What it holds."""', {"relative_docstrings": 1}),
        ('class C:\n    """`Who` asks."""', {"relative_docstrings": 1}),
        ("def is_joined(): ...\nclass Ended2: ...\nclass Open: ...", {"private_words": 1}),
        ("def open(): ...\ndef listen(): ...\ndef __told__(): ...\ntold = wanted = 1", {}),
        ('"""Whatever is here: no listed word."""\nx = "Who"', {}),
    ],
)
def test_each_figure_counts_a_planted_place(text: str, expected: dict[str, int]) -> None:
    assert counted(text) == expected


def test_a_module_named_by_an_ing_word_is_counted() -> None:
    assert counted("", "storage/log/sealing.py") == {"ing_modules": 1}
    assert counted("", "storage/log/sealer.py") == {}


def test_a_class_name_is_shared_by_public_classes_of_the_product_alone() -> None:
    sources = {
        "broker/a.py": "class Frame: ...\nclass _Private: ...\nclass Alone: ...",
        "storage/b.py": "class Frame: ...\nclass _Private: ...\nclass Outer:\n    class Alone: ...",
        "protocol/messages/c.py": "class Alone: ...",
        "broker/room/api/alone.py": "class Alone: ...",
        "bench/d.py": "class Alone: ...",
    }
    found = vocabulary.places(sources)
    shared = {package: figures["shared_class_names"] for package, figures in found.items()}
    assert {package: where for package, where in shared.items() if where} == {
        "broker": ["broker/a.py:1 Frame"],
        "storage": ["storage/b.py:1 Frame"],
    }


def test_a_figure_above_its_number_lists_its_places() -> None:
    found = vocabulary.places({"broker/m.py": "def told_it(): ..."})
    above, below = vocabulary.findings(found, {"broker": {"private_words": 0}, "bench": {"ing_modules": 2}})
    assert above[0].startswith("broker: 1 times")
    assert above[1:] == ["  broker/m.py:1 told_it"]
    assert below == ["bench: ing_modules fell to 0 from 2"]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A tree with one private word in bench, and the number 2 for it."""
    (tmp_path / "bench").mkdir()
    (tmp_path / "bench" / "m.py").write_text("def told_it(): ...")
    (tmp_path / "numbers.toml").write_text("[bench]\nprivate_words = 2\n")
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    return tmp_path


def test_update_lowers_a_number_and_refuses_to_raise_it(
    tree: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    numbers = tree / "numbers.toml"
    assert vocabulary.main([], tree, numbers) == 0
    assert "--update" in capsys.readouterr().out
    assert vocabulary.main(["--update"], tree, numbers) == 0
    assert tomllib.loads(numbers.read_text())["bench"]["private_words"] == 1
    (tree / "bench" / "n.py").write_text("def told_it(): ...")
    assert vocabulary.main(["--update"], tree, numbers) == 1
    assert tomllib.loads(numbers.read_text())["bench"]["private_words"] == 1


def test_a_package_named_on_the_command_line_is_listed_whole(
    tree: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert vocabulary.main(["bench"], tree, tree / "numbers.toml") == 0
    assert "bench: private_words: 1\n  bench/m.py:1 told_it\n" in capsys.readouterr().out
