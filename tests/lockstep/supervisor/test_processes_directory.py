"""The directory around the nodes': what is taken, what is refused, and that nothing is changed."""

from __future__ import annotations

from pathlib import Path

import pytest

from lockstep.broker.node.data_directory import DataDirectory, DirectoryInUse, WrongDirectory
from lockstep.stopped_broker import node_directories
from lockstep.storage.types import NewerFormat
from lockstep.supervisor.processes_directory import ProcessesDirectory, recorded_number
from tests.support.cases import each_case


def opened(path: Path, processes: int) -> ProcessesDirectory:
    return ProcessesDirectory(path, [path / f"node-{number}" for number in range(1, processes + 1)])


def started(path: Path, processes: int, *removed: int) -> None:
    """A cluster that has run, without those that were removed from it."""
    opened(path, processes).close()
    for number in range(1, processes + 1):
        node = DataDirectory(path / f"node-{number}", number, alone=False)
        if number in removed:
            node.record_removal()
        node.close()


def tree(path: Path) -> list[tuple[str, str]]:
    files = [each for each in sorted(path.rglob("*")) if each.is_file()]
    return [(str(each.relative_to(path)), each.read_text()) for each in files if each.name != ".lock"]


def test_it_is_locked_and_remembers_the_number(tmp_path: Path) -> None:
    path = tmp_path / "new" / "data"
    first = opened(path, 3)
    assert recorded_number(path) == 3
    assert sorted(each.name for each in path.glob("node-*")) == ["node-1", "node-2", "node-3"]
    with pytest.raises(DirectoryInUse, match="another Lockstep"):
        opened(path, 3)
    first.close()
    before = (path / "processes.properties").stat().st_ino
    opened(path, 3).close()
    assert (path / "processes.properties").stat().st_ino == before, "nothing to write"
    assert (path / ".lock").read_text() == ""


def test_more_nodes_come_to_it_and_fewer_only_once_removed(tmp_path: Path) -> None:
    started(tmp_path, 2)
    opened(tmp_path, 3).close()
    assert recorded_number(tmp_path) == 3
    started(tmp_path, 3)
    before = tree(tmp_path)
    with pytest.raises(WrongDirectory, match=r"--processes 3\. For fewer, run `lockstep cluster remove 3`"):
        opened(tmp_path, 2)
    assert tree(tmp_path) == before
    started(tmp_path, 3, 3)
    opened(tmp_path, 2).close()
    assert recorded_number(tmp_path) == 2
    with pytest.raises(WrongDirectory, match="--processes 2"):
        opened(tmp_path, 1)


def test_a_node_directory_that_is_gone_is_missed(tmp_path: Path) -> None:
    opened(tmp_path, 3).close()
    (tmp_path / "node-2").rmdir()
    with pytest.raises(WrongDirectory, match="node-2 is missing: the only copy"):
        opened(tmp_path, 3)
    assert not (tmp_path / "node-2").exists()


def test_data_of_another_kind_stay_as_they_are(tmp_path: Path) -> None:
    DataDirectory(tmp_path / "alone", 1).close()
    DataDirectory(tmp_path / "cluster" / "1", 1, alone=False).close()
    started(tmp_path / "lost", 2)
    (tmp_path / "lost" / "processes.properties").unlink()
    (tmp_path / "file").write_text("no directory")
    before = tree(tmp_path)
    for name, words in (
        ("alone", "a broker that runs alone"),
        ("cluster", "the nodes of `make cluster`"),
        ("lost", "but no processes.properties"),
        ("file", "is a file, not a directory"),
    ):
        with pytest.raises(WrongDirectory, match=words):
            opened(tmp_path / name, 2)
    assert tree(tmp_path) == before


def test_a_broker_alone_does_not_start_around_the_nodes(tmp_path: Path) -> None:
    opened(tmp_path, 2).close()
    with pytest.raises(WrongDirectory, match="nodes of `lockstep serve --processes`"):
        DataDirectory(tmp_path, 1)


@each_case(
    ("text", "error", "words"),
    [
        ("format=2\nprocesses=3\n", NewerFormat, "has format 2"),
        ("format=1\nprocesses=0\n", WrongDirectory, "was not written by Lockstep"),
        ("format=1\n", WrongDirectory, "was not written by Lockstep"),
        ("processes=3\n", WrongDirectory, "was not written by Lockstep"),
        ("format=\\u00\n", WrongDirectory, "cannot be read"),
    ],
)
def test_a_number_that_cannot_be_read_stops_the_start(
    tmp_path: Path, text: str, error: type[Exception], words: str
) -> None:
    (tmp_path / "processes.properties").write_text(text)
    with pytest.raises(error, match=words):
        opened(tmp_path, 3)


def test_a_stopped_command_shows_the_logs_of_all_its_nodes(tmp_path: Path) -> None:
    opened(tmp_path, 11).close()
    for number in (2, 11):
        (tmp_path / f"node-{number}" / "groups").mkdir()
    assert node_directories(tmp_path) == [tmp_path / "node-2", tmp_path / "node-11"]
