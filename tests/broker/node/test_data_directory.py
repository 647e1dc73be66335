"""The data directory: one broker, one node, known formats only."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import shutil
import tempfile
import threading
import time
from pathlib import Path

import pytest

from lockstep.broker.metadata.metadata_version import LATEST_VERSION
from lockstep.broker.node import data_directory
from lockstep.broker.node.data_directory import (
    DataDirectory,
    DirectoryInUse,
    WrongDirectory,
    describe_os_error,
    is_removed,
    recorded_cluster,
)
from lockstep.broker.server import Broker
from lockstep.storage.log.file_system import RealFileSystem
from lockstep.storage.types import NewerFormat
from tests.broker.conftest import small_settings
from tests.support.cases import each_case


def test_one_broker_at_a_time(tmp_path: Path) -> None:
    held = DataDirectory(tmp_path / "new" / "data", 1)
    with pytest.raises(DirectoryInUse, match=r"another Lockstep \(process [0-9]+\)"):
        DataDirectory(tmp_path / "new" / "data", 1)
    held.close()
    DataDirectory(tmp_path / "new" / "data", 1).close()


def test_a_directory_that_cannot_be_locked_is_not_another_brokers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def flock(fd: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", flock)
    with pytest.raises(WrongDirectory, match="cannot lock: no locks available"):
        DataDirectory(tmp_path, 1)


def test_the_process_is_named_while_it_holds_the_directory(tmp_path: Path) -> None:
    """An id that is left behind may be another process's later, and be killed by mistake."""
    held = DataDirectory(tmp_path, 1)
    assert (tmp_path / ".lock").read_text() == f"{os.getpid()}\n"
    held.close()
    assert (tmp_path / ".lock").read_text() == ""
    with pytest.raises(WrongDirectory):
        DataDirectory(tmp_path, 2)
    assert (tmp_path / ".lock").read_text() == ""


def test_records_of_two_threads_are_both_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write, directory = data_directory.write_flushed, DataDirectory(tmp_path, 1, alone=False)
    before = threading.Barrier(2)

    def slow(path: Path, text: str) -> None:
        write(path, text)
        time.sleep(0.05)  # the other thread is at the door

    def record(method: str, *values: str) -> None:
        before.wait(10)
        getattr(directory, method)(*values)

    monkeypatch.setattr(data_directory, "write_flushed", slow)
    calls = [("record_cluster", "a cluster"), ("record_registered",)]
    threads = [threading.Thread(target=record, args=call) for call in calls]
    for each in threads:
        each.start()
    for each in threads:
        each.join(10)
    directory.close()
    again = DataDirectory(tmp_path, 1, alone=False)
    assert (again.cluster_id, again.is_registered) == ("a cluster", True)
    again.close()


def test_a_directory_around_those_of_a_cluster_is_refused(tmp_path: Path) -> None:
    """`make serve` after `make cluster`: the nodes would be left below a broker alone."""
    for number in (1, 2):
        DataDirectory(tmp_path / "data" / str(number), number, alone=False).close()
    with pytest.raises(WrongDirectory) as caught:
        DataDirectory(tmp_path / "data", 1)
    for words in ("holds the nodes of a cluster (data/1, data/2)", f"make cluster DATA_DIR={tmp_path}/data"):
        assert words in str(caught.value)
    assert sorted(each.name for each in (tmp_path / "data").iterdir()) == ["1", "2"]


def test_alone_or_of_a_cluster_and_the_cure(tmp_path: Path) -> None:
    of_cluster = DataDirectory(tmp_path / "node", 1, alone=False)
    of_cluster.record_part("founder")
    of_cluster.close()
    with pytest.raises(
        WrongDirectory, match=r"belongs to node 1 of a cluster.*--peers.*make serve DATA_DIR="
    ):
        DataDirectory(tmp_path / "node", 1)
    DataDirectory(tmp_path / "alone", 1).close()
    (tmp_path / "alone" / "groups" / "0").mkdir(parents=True)
    with pytest.raises(WrongDirectory, match=r"was alone.*--data-dir.*without --peers"):
        DataDirectory(tmp_path / "alone", 1, alone=False)


def test_one_that_is_not_writable_is_reported() -> None:
    """As a user that is not root, who may write anywhere."""
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o555)
        me = os.geteuid()
        os.seteuid(me or 65_534)
        try:
            for path, asked in ((Path(name), ".lock"), (Path(name, "new"), "new")):
                words = (
                    rf"data directory {path} is not writable for this user \(.*/{asked}: permission denied\):"
                )
                with pytest.raises(WrongDirectory, match=words):
                    DataDirectory(path, 1)
        finally:
            os.seteuid(me)


def test_a_recorded_metadata_version_keeps_older_brokers_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = DataDirectory(tmp_path, 1)
    assert directory.metadata_version == 0
    directory.record_metadata_version(0)
    assert "format=1\n" in (tmp_path / "meta.properties").read_text()
    directory.record_metadata_version(9)
    directory.record_metadata_version(8)
    directory.close()
    text = (tmp_path / "meta.properties").read_text()
    assert "format=2\n" in text and "metadata.version=9\n" in text, "brokers without versions know format 1"
    directory.group(0).mkdir(parents=True)
    again = DataDirectory(tmp_path, 1)
    assert again.metadata_version == 9
    again.close()
    monkeypatch.setattr(data_directory, "LATEST_VERSION", 8)
    with pytest.raises(NewerFormat, match="metadata have version 9, this Lockstep supports up to 8"):
        DataDirectory(tmp_path, 1)


def test_of_one_node(tmp_path: Path) -> None:
    DataDirectory(tmp_path, 1).close()
    with pytest.raises(WrongDirectory, match=r"node\.id=1, this is node\.id=2"):
        DataDirectory(tmp_path, 2)
    DataDirectory(tmp_path, 1).close()


def test_refuses_a_node_that_was_removed(tmp_path: Path) -> None:
    directory = DataDirectory(tmp_path, 3, alone=False)
    directory.record_part("founder")
    directory.record_removal()
    directory.close()
    with pytest.raises(WrongDirectory, match="belongs to node 3, which was removed from the cluster"):
        DataDirectory(tmp_path, 3, alone=False)


def test_refuses_a_newer_format(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text("format=3\nnode.id=1\n")
    with pytest.raises(NewerFormat, match="format 3"):
        DataDirectory(tmp_path, 1)


def test_refuses_what_is_not_ours(tmp_path: Path) -> None:
    kafka = tmp_path / "kafka"
    kafka.mkdir()
    (kafka / "meta.properties").write_text("version=1\ncluster.id=x\nnode.id=1\n")
    with pytest.raises(WrongDirectory, match="not written by Lockstep"):
        DataDirectory(kafka, 1)
    (kafka / "meta.properties").write_bytes(b"format=1\nnode.id=1\n\xff\xff")
    with pytest.raises(WrongDirectory, match="cannot be read"):
        DataDirectory(kafka, 1)
    for damaged in ("format=1\nnode.id=\x02\x1b[2J\n", "format=\x7f\nnode.id=1\n", "format=1\n\\u00\x07=\n"):
        (kafka / "meta.properties").write_text(damaged)
        with pytest.raises((WrongDirectory, NewerFormat)) as refused:
            DataDirectory(kafka, 1)
        assert str(refused.value).isprintable()
    headless = tmp_path / "headless"
    (headless / "groups" / "0").mkdir(parents=True)
    with pytest.raises(WrongDirectory):
        DataDirectory(headless, 1)


def test_what_could_not_be_written_is_not_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = DataDirectory(tmp_path, 1, alone=False)

    def fail(source: Path, target: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as full, pytest.raises(OSError, match="No space left"):
        full.setattr(os, "replace", fail)
        directory.record_part("founder")
    assert directory.part == ""
    directory.record_part("stranger")
    assert directory.part == "stranger"
    directory.close()


@each_case(
    ("text", "error", "words"),
    [
        ("node.id=1\npart=\nmetadata.version=-1\n", WrongDirectory, "is damaged (metadata.version=-1)"),
        ("node.id=1\npart=\nmetadata.version=abc\n", WrongDirectory, "is damaged (metadata.version=abc)"),
        ("node.id=1\npart=\nmetadata.version=\n", WrongDirectory, "is damaged (metadata.version=)"),
        (f"node.id=1\npart=\nmetadata.version={'9' * 5000}\n", WrongDirectory, f"version={'9' * 40})"),
        ("node.id=1\npart=\nmetadata.version=99\n", NewerFormat, "start a newer Lockstep"),
        ("node.id=1\npart=al\n", WrongDirectory, "is damaged (part=al)"),
        ("node.id=1\npart=", WrongDirectory, "cannot be read: it is cut short"),
        ("node.id=1\n", WrongDirectory, "is damaged (part is missing)"),
        ("part=alone\n", WrongDirectory, "is damaged (node.id is missing)"),
    ],
)
@each_case("alone", [True, False])
def test_damaged_properties_are_named(
    tmp_path: Path, text: str, error: type[Exception], words: str, alone: bool
) -> None:
    (tmp_path / "meta.properties").write_text(f"format=1\n{text}")
    with pytest.raises(error, match=re.escape(words)):
        DataDirectory(tmp_path, 1, alone=alone)


def test_a_format_of_many_digits_is_damage(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text(f"format={'1' * 5000}\nnode.id=1\npart=\n")
    with pytest.raises(WrongDirectory, match="is damaged"):
        DataDirectory(tmp_path, 1)


def test_a_pipe_in_place_of_the_properties_stops_no_start(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "meta.properties")
    with pytest.raises(OSError, match=r"not a regular file.*meta\.properties"):
        DataDirectory(tmp_path, 1)
    assert not is_removed(tmp_path) and recorded_cluster(tmp_path) is None


@each_case(
    ("record", "arguments"),
    [("record_registered", ()), ("record_cluster", ("id",)), ("record_metadata_version", (LATEST_VERSION,))],
)
@each_case("left", [(), ("1",)], ids=["no groups", "group 1"])
def test_a_node_of_a_cluster_without_its_log_groups_does_not_start(
    tmp_path_factory: pytest.TempPathFactory,
    record: str,
    arguments: tuple[object, ...],
    left: tuple[str, ...],
) -> None:
    path = tmp_path_factory.mktemp("data")
    directory = DataDirectory(path, 1, alone=False)
    directory.record_part("founder")
    getattr(directory, record)(*arguments)
    for number in left:
        directory.group(int(number)).mkdir(parents=True)
    directory.close()
    before = (path / "meta.properties").read_text()
    lost = re.escape(str(path / "groups" / "0" if left else path / "groups"))
    with pytest.raises(WrongDirectory, match=rf"^{lost} is lost.* put it back .*or empty {path}: then"):
        DataDirectory(path, 1, alone=False)
    assert (path / "meta.properties").read_text() == before
    directory.group(0).mkdir(parents=True)
    DataDirectory(path, 1, alone=False).close()


@each_case("part", ["founder", "stranger"])
def test_a_part_that_was_recorded_and_undone_is_none(
    tmp_path_factory: pytest.TempPathFactory, part: str
) -> None:
    """The directory's flush failed after the record, so the groups were removed; then the process ended."""
    path = tmp_path_factory.mktemp("data")
    directory = DataDirectory(path, 1, alone=False)
    directory.record_part(part)
    directory.close()
    again = DataDirectory(path, 1, alone=False)
    assert again.part == ""
    again.close()


@each_case("alone", [True, False])
def test_a_node_alone_without_its_log_groups_does_not_start(tmp_path: Path, alone: bool) -> None:
    directory = DataDirectory(tmp_path, 1)
    directory.close()
    directory = DataDirectory(tmp_path, 1)  # a first start that was killed early
    directory.record_metadata_version(LATEST_VERSION)
    directory.close()
    with pytest.raises(
        WrongDirectory, match=rf"^{tmp_path}/groups is lost.*put it back.*or empty {tmp_path}"
    ):
        DataDirectory(tmp_path, 1, alone=alone)
    for each in (tmp_path / "meta.properties", tmp_path / ".lock"):
        each.unlink()


@each_case("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_stops_no_start_over_the_process_id(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    DataDirectory(tmp_path, 1).close()

    def fail(*arguments: object) -> int:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as full:
        full.setattr(os, "pwrite", fail)
        DataDirectory(tmp_path, 1).close()


def test_a_full_disk_is_named_with_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="No space left") as caught:
        data_directory.write_flushed(tmp_path / "meta.properties", "x\n")
    assert describe_os_error(caught.value) == f"{tmp_path}/meta.properties: no space left on device"


def two_nodes(path: Path) -> tuple[Path, Path]:
    """The directories of nodes 1 and 2, each with its groups 0 and 1."""
    for node_id in (1, 2):
        directory = DataDirectory(path / str(node_id), node_id, alone=False)
        directory.record_part("founder")
        for group_id in (0, 1):
            directory.group(group_id).mkdir(parents=True)
            directory.record_owner(group_id)
        directory.close()
    return path / "1", path / "2"


def open_again(path: Path) -> None:
    DataDirectory(path, int(path.name), alone=False).close()


def test_groups_that_were_swapped_between_nodes_are_refused(tmp_path: Path) -> None:
    first, second = two_nodes(tmp_path)
    (first / "groups").rename(tmp_path / "kept")
    (second / "groups").rename(first / "groups")
    (tmp_path / "kept").rename(second / "groups")
    with pytest.raises(WrongDirectory, match=rf"^{first}/groups/0 is of another data directory, of node 2:"):
        open_again(first)
    with pytest.raises(
        WrongDirectory, match="of node 1: its votes and records are not those of node 2, which starts here"
    ):
        open_again(second)


def test_one_group_of_another_node_is_refused(tmp_path: Path) -> None:
    first, second = two_nodes(tmp_path)
    shutil.rmtree(first / "groups" / "1")
    shutil.copytree(second / "groups" / "1", first / "groups" / "1")
    with pytest.raises(WrongDirectory, match="groups/1 is of another data directory, of node 2"):
        open_again(first)


def test_groups_of_an_earlier_life_of_the_node_are_refused(tmp_path: Path) -> None:
    first, _ = two_nodes(tmp_path)
    (first / "groups").rename(tmp_path / "kept")
    shutil.rmtree(first)
    DataDirectory(first, 1, alone=False).close()
    (tmp_path / "kept").rename(first / "groups")
    with pytest.raises(WrongDirectory, match="groups/0 is of another data directory, of node 1"):
        open_again(first)


def test_a_directory_of_an_older_version_gets_its_owners(tmp_path: Path) -> None:
    """Without any, and with the properties of before beside groups that have them."""
    first, second = two_nodes(tmp_path)
    meta, owner = first / "meta.properties", first / "groups" / "0" / "owner.properties"
    older = "".join(line for line in meta.read_text().splitlines(True) if "directory.id" not in line)
    recorded = owner.read_text()
    meta.write_text(older)
    open_again(first)
    assert f"\n{recorded.splitlines()[1]}\n" in meta.read_text()
    for each in first.glob("groups/*/owner.properties"):
        each.unlink()
    meta.write_text(older)
    directory = DataDirectory(first, 1, alone=False)
    directory.record_owner(0)
    directory.close()
    assert owner.read_text() != recorded and owner.read_text().startswith("node.id=1\ndirectory.id=")
    open_again(first)
    owner.write_text("damaged")
    open_again(first)
    meta.write_text(older)
    shutil.copy(second / "groups" / "0" / "owner.properties", owner)
    with pytest.raises(WrongDirectory, match="of node 2"):
        open_again(first)


def test_a_full_disk_puts_the_owner_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, _ = two_nodes(tmp_path)
    meta = first / "meta.properties"
    meta.write_text("".join(each for each in meta.read_text().splitlines(True) if "directory.id" not in each))
    for each in first.glob("groups/*/owner.properties"):
        each.unlink()

    def fail(*arguments: object, **named: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr(data_directory, "write_flushed", fail)
        directory = DataDirectory(first, 1, alone=False)
        directory.record_owner(0)
        directory.close()
    assert "directory.id" not in meta.read_text() and not list(first.glob("groups/*/owner.properties"))
    open_again(first)
    assert "directory.id" in meta.read_text()


def test_groups(tmp_path: Path) -> None:
    directory = DataDirectory(tmp_path, 1)
    assert directory.groups() == []
    for number in (10, 2, 0):
        directory.group(number).mkdir(parents=True)
    for name in ("note", "9" * 200, "-1", "07", "\N{ARABIC-INDIC DIGIT THREE}"):
        (tmp_path / "groups" / name).mkdir()
    assert directory.groups() == [0, 2, 10]
    directory.close()


async def test_every_directory_is_durable_in_its_parent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed: set[Path] = set()
    real = RealFileSystem.fsync_dir

    def flush(self: RealFileSystem, path: Path) -> None:
        flushed.add(path)
        real(self, path)

    monkeypatch.setattr(RealFileSystem, "fsync_dir", flush)
    data = tmp_path / "new" / "data"
    broker = Broker(small_settings(data))
    await broker.start()
    await broker.stop()
    assert {tmp_path, tmp_path / "new", data, data / "groups"} <= flushed


def test_a_group_that_is_given_up_is_gone_at_once_and_removed_later(tmp_path: Path) -> None:
    """A kill in the midst of removing it must not leave half of a log that the next start opens."""
    directory = DataDirectory(tmp_path, 1, alone=False)
    assert directory.mark_removed(3) is None
    for _ in range(2):  # it may come back, and go again before the rest was removed
        directory.group(3).mkdir(parents=True)
        (directory.group(3) / "state").write_bytes(b"x")
        gone = directory.mark_removed(3)
        assert gone is not None and (gone / "state").exists() and directory.groups() == []
    directory.close()
    DataDirectory(tmp_path, 1, alone=False).close()
    assert os.listdir(tmp_path / "groups") == []
