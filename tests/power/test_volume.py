"""Each rule of the volume: what a flush keeps, what a loss may take, what a loss may leave."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from tests.power.volume import PAGE_BYTES, SECTOR_BYTES, Directory, File, Loss, Volume, apply
from tests.support.cases import each_case

SEEDS = range(200)


def after_losses(prepare: Callable[[Volume], None]) -> list[tuple[Volume, Loss]]:
    """The same preparation, and a loss by each seed."""
    found = []
    for seed in SEEDS:
        volume = Volume()
        prepare(volume)
        found.append((volume, volume.lose_power(Random(seed))))
    return found


def kept_file(volume: Volume, name: str = "/a", data: bytes = b"") -> File:
    file = volume.create(name)
    file.change(0, data)
    volume.flush(file)
    volume.flush_dir(volume.root)
    return file


def everything(directory: Directory) -> dict[str, bytes]:
    return {name: bytes(file.seen) for name, file in directory.seen.items() if isinstance(file, File)}


def contents(volume: Volume, name: str = "/a") -> bytes | None:
    return bytes(volume.file(name).seen) if name[1:] in volume.root.seen else None


def test_the_system_sees_its_own_writes_before_any_flush() -> None:
    volume = Volume()
    file = volume.create("/a")
    file.change(4, b"late")
    file.change(0, b"soon")
    assert contents(volume) == b"soonlate"
    file.change(6, None)
    assert contents(volume) == b"soonla"
    assert volume.file("/a") is file


def test_what_was_flushed_survives_every_loss() -> None:
    for volume, loss in after_losses(lambda volume: (kept_file(volume, data=b"x" * 9000), None)[1]):
        assert contents(volume) == b"x" * 9000
        assert loss == Loss()


def test_what_was_not_flushed_is_lost_kept_or_torn() -> None:
    def prepare(volume: Volume) -> None:
        kept_file(volume, data=b"o" * 3 * PAGE_BYTES).change(100, b"n" * 2 * PAGE_BYTES)

    found = after_losses(prepare)
    new = [(contents(volume) or b"").count(b"n") for volume, _ in found]
    assert 0 in new
    assert 2 * PAGE_BYTES in new
    assert any(0 < count < 2 * PAGE_BYTES for count in new)
    assert all(loss.changes == 1 for _, loss in found)
    assert sum(loss.changes_lost for _, loss in found) == new.count(0)
    assert sum(loss.changes_torn for _, loss in found) == sum(0 < count < 2 * PAGE_BYTES for count in new)


def test_a_write_is_torn_where_sectors_and_pages_end_and_nowhere_else() -> None:
    def prepare(volume: Volume) -> None:
        kept_file(volume, data=b"o" * 3 * PAGE_BYTES).change(100, b"n" * 2 * PAGE_BYTES)

    places: set[int] = set()
    for volume, _ in after_losses(prepare):
        data = contents(volume)
        assert data is not None
        places |= {at for at in range(1, len(data)) if data[at] != data[at - 1]}
    inner = places - {100, 100 + 2 * PAGE_BYTES}
    assert all(at % SECTOR_BYTES == 0 for at in inner)
    assert any(at % PAGE_BYTES for at in inner)
    assert any(at % PAGE_BYTES == 0 for at in inner)


def test_later_writes_may_stay_without_earlier_ones() -> None:
    def prepare(volume: Volume) -> None:
        file = kept_file(volume, data=bytes(4 * SECTOR_BYTES))
        for number in range(4):
            file.change(number * SECTOR_BYTES, b"%d" % (number + 1) * SECTOR_BYTES)

    states = {bytes(contents(volume) or b"")[::SECTOR_BYTES] for volume, _ in after_losses(prepare)}
    assert len(states) == 16


def test_a_sector_never_goes_back_to_an_older_write_once_a_newer_is_there() -> None:
    def prepare(volume: Volume) -> None:
        file = kept_file(volume, data=b"0" * 10)
        file.change(0, b"1" * 10)
        file.change(0, b"2" * 5)

    states = {contents(volume) for volume, _ in after_losses(prepare)}
    assert states == {b"0" * 10, b"1" * 10, b"2222200000", b"2222211111"}


def test_a_length_that_was_not_flushed_may_come_back_or_go_ahead_of_its_bytes() -> None:
    def shorten(volume: Volume) -> None:
        kept_file(volume, data=b"x" * 10).change(4, None)

    def lengthen(volume: Volume) -> None:
        file = kept_file(volume, data=b"x")
        file.change(600, None)
        file.change(0, b"y" * 600)

    assert {contents(volume) for volume, _ in after_losses(shorten)} == {b"x" * 10, b"xxxx"}
    assert b"x" + bytes(599) in {contents(volume) for volume, _ in after_losses(lengthen)}


def test_a_flush_keeps_what_was_written_before_it_began_only() -> None:
    volume = Volume()
    file = kept_file(volume, data=b"first")
    file.change(0, b"begun")
    begun = file.changes
    file.change(0, b"later")
    volume.flush(file, begun)
    assert bytes(file.kept) == b"begun"
    assert file.pending == [(0, b"later")]
    volume.flush(file, begun)  # another flush that began then and ends now
    assert bytes(file.kept) == b"begun"
    volume.flush(file)
    assert bytes(file.kept) == b"later"


@each_case("flushed", [False, True])
def test_a_name_may_be_lost_until_its_directory_is_flushed(flushed: bool) -> None:
    def prepare(volume: Volume) -> None:
        file = volume.create("/a")
        file.change(0, b"bytes")
        volume.flush(file)  # keeps the bytes, not the name
        if flushed:
            volume.flush_dir(volume.root)

    states = {contents(volume) for volume, _ in after_losses(prepare)}
    assert states == ({b"bytes"} if flushed else {None, b"bytes"})


@each_case("flushed", [False, True])
def test_a_rename_may_be_lost_whole_until_the_directory_is_flushed(flushed: bool) -> None:
    def prepare(volume: Volume) -> None:
        kept_file(volume, "/new", b"new")
        kept_file(volume, "/a", b"old")
        volume.rename("/new", "/a")
        if flushed:
            volume.flush_dir(volume.root)

    states = {(contents(volume, "/new"), contents(volume)) for volume, _ in after_losses(prepare)}
    assert states == ({(None, b"new")} if flushed else {(None, b"new"), (b"new", b"old")})


def test_a_renamed_file_that_was_not_flushed_may_be_empty_under_its_new_name() -> None:
    def prepare(volume: Volume) -> None:
        kept_file(volume, "/a", b"old")
        volume.create("/new").change(0, b"new")
        volume.rename("/new", "/a")
        volume.flush_dir(volume.root)

    assert {contents(volume) for volume, _ in after_losses(prepare)} == {b"", b"new"}


def test_a_removed_file_may_be_back_until_the_directory_is_flushed() -> None:
    def prepare(volume: Volume) -> None:
        kept_file(volume, data=b"x")
        volume.unlink("/a")

    assert {contents(volume) for volume, _ in after_losses(prepare)} == {None, b"x"}


def test_a_file_whose_creation_is_lost_has_no_later_name_either() -> None:
    def prepare(volume: Volume) -> None:
        volume.create("/tmp")
        volume.rename("/tmp", "/a")

    states = {frozenset(volume.root.seen) for volume, _ in after_losses(prepare)}
    assert states == {frozenset(), frozenset({"tmp"}), frozenset({"a"})}


def test_a_directory_that_is_lost_takes_what_is_in_it() -> None:
    def prepare(volume: Volume) -> None:
        inner = volume.make_dir("/d")
        volume.flush(volume.create("/d/a"))
        volume.flush_dir(inner)

    states = {"d" in volume.root.seen for volume, _ in after_losses(prepare)}
    assert states == {False, True}
    for volume, _ in after_losses(prepare):
        if "d" in volume.root.seen:
            assert list(volume.directory("/d").seen) == ["a"]


def test_after_a_loss_nothing_is_pending_and_a_second_changes_nothing() -> None:
    def prepare(volume: Volume) -> None:
        inner = volume.make_dir("/d")
        volume.flush_dir(volume.root)
        volume.create("/d/a").change(0, b"x" * 10_000)
        assert inner.pending

    for volume, _ in after_losses(prepare):
        before = everything(volume.directory("/d"))
        assert volume.lose_power(Random(1)) == Loss()
        assert everything(volume.directory("/d")) == before


def test_the_same_seed_leaves_the_same() -> None:
    def prepare(volume: Volume) -> None:
        for name in ("/a", "/b", "/c"):
            volume.create(name).change(0, name.encode() * 5000)

    def states() -> list[tuple[dict[str, bytes], Loss]]:
        return [(everything(volume.root), loss) for volume, loss in after_losses(prepare)]

    assert states() == states()


def test_a_disk_that_lies_keeps_nothing_by_a_flush() -> None:
    volume = Volume()
    volume.keeps_flushes = False
    file = kept_file(volume, data=b"x")
    assert bytes(file.kept) == b""
    assert volume.root.kept == {}
    assert file.pending


def test_errors_are_the_system_s() -> None:
    volume = Volume()
    volume.create("/a")
    volume.create("/b")
    volume.make_dir("/d")
    volume.create("/d/a")
    volume.rename("/a", "/a")
    for error, attempt in (
        (FileExistsError, lambda: volume.create("/a")),
        (FileExistsError, lambda: volume.make_dir("/d")),
        (FileNotFoundError, lambda: volume.find("/x")),
        (NotADirectoryError, lambda: volume.find("/a/x")),
        (NotADirectoryError, lambda: volume.directory("/a")),
        (IsADirectoryError, lambda: volume.file("/d")),
        (IsADirectoryError, lambda: volume.rename("/a", "/d")),
        (OSError, lambda: volume.rename("/a", "/d/b")),
        (OSError, lambda: volume.remove_dir("/d")),
    ):
        with pytest.raises(error):
            attempt()
    volume.unlink("/d/a")
    volume.remove_dir("/d")
    assert isinstance(volume.find("/"), Directory)
    assert list(volume.root.seen) == ["a", "b"]


def test_a_gap_before_a_write_is_zeros() -> None:
    data = bytearray(b"x")
    apply(data, 3, b"y")
    assert data == b"x\0\0y"
