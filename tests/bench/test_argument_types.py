"""What the words of a benchmark's command line may be."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import pytest

from bench import argument_types


@pytest.mark.parametrize(
    ("type_", "good", "bad"),
    [
        (argument_types.limit, ["0", "40"], ["-1", "two"]),
        (argument_types.count, ["1", "40"], ["0", "-1", "two", "1.5", ""]),
        (argument_types.positive, ["0.5", "3"], ["0", "-1", "nan", "inf", "long"]),
        (argument_types.heap, ["512M", "1g"], ["lots", "512", "0M", "-1G"]),
    ],
)
def test_numbers(type_: Callable[[str], object], good: list[str], bad: list[str]) -> None:
    for text in good:
        assert str(type_(text)) in (text, f"{text}.0")
    for text in bad:
        with pytest.raises(argparse.ArgumentTypeError):
            type_(text)


def test_directories(tmp_path: Path) -> None:
    assert (
        argument_types.existing_directory(str(tmp_path)) == argument_types.results(str(tmp_path)) == tmp_path
    )
    new = tmp_path / "a" / "b"
    assert argument_types.results(str(new)) == new
    assert list(tmp_path.iterdir()) == [], "it is made when there is a result"
    with pytest.raises(argparse.ArgumentTypeError, match="there is no directory"):
        argument_types.existing_directory(str(new))
    with pytest.raises(argparse.ArgumentTypeError, match="cannot be written to"):
        argument_types.existing_directory("/proc/self")
    file = tmp_path / "file"
    file.write_text("")
    for wrong in (file, file / "below", Path("/proc/nope")):
        with pytest.raises(argparse.ArgumentTypeError, match=r"no directory|cannot be made"):
            argument_types.results(str(wrong))


def test_the_words_again_are_those_that_were_given() -> None:
    options = argparse.Namespace(quick=True, flame=False, rounds=2, seconds=None, policy=["os"], nodes=(1, 3))
    names = ("quick", "flame", "rounds", "seconds", "policy", "nodes", "heap")
    found = argument_types.words(options, names)
    assert found == ["--quick", "--rounds", "2", "--policy", "os", "--nodes", "1", "--nodes", "3"]


def test_rounds_trees_and_pictures(tmp_path: Path) -> None:
    assert argument_types.rounds("1000") == 1000
    assert argument_types.picture(str(tmp_path / "x.svg")) == tmp_path / "x.svg"
    assert argument_types.tree(str(Path(__file__).parents[2]))
    (tmp_path / "d.svg").mkdir()
    refused: list[tuple[Callable[[str], object], str]] = [
        (argument_types.rounds, "1001"),
        (argument_types.rounds, "0"),
        (argument_types.picture, ""),
        (argument_types.picture, str(tmp_path)),
        (argument_types.picture, str(tmp_path / "x.bogus")),
        (argument_types.picture, str(tmp_path / "d.svg")),
        (argument_types.picture, str(tmp_path / "nowhere" / "x.svg")),
        (argument_types.tree, str(tmp_path)),
        (argument_types.tree, str(tmp_path / "nowhere")),
        (argument_types.existing_directory, ""),
        (argument_types.results, ""),
    ]
    for type_, text in refused:
        with pytest.raises(argparse.ArgumentTypeError):
            type_(text)
