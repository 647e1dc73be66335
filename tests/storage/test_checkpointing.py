"""When a checkpoint is cut before its segment is full: restarts replay so many batches and not many more."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from storage import checkpointing
from storage.group import LogGroup
from tests.storage.cluster import append
from tests.storage.test_group import TOPIC, Tally, checkpointed, open_group

MOST = 50


async def fill(group: LogGroup, count: int) -> None:
    """One frame per batch."""
    (partition,) = [each for each in group.partitions.values() if each.topic_id == TOPIC]
    for number in range(count):
        append(group, partition, b"%d" % number)
        await group.committed()


async def killed(group: LogGroup, directory: Path) -> Path:
    """What a kill at this moment leaves on the disk."""
    if group._replica.checkpointer.under_way is not None:
        await group._replica.checkpointer.under_way
    copy = directory.with_name(directory.name + "-killed")
    shutil.copytree(directory, copy, ignore=shutil.ignore_patterns("*.tmp"))  # being prepared, and renamed
    await group.close()
    return copy


async def test_small_batches_do_not_wait_for_the_end_of_the_segment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpointing, "MOST_BATCHES", MOST)
    tally = Tally()
    group = await open_group(tmp_path / "log", commit={TOPIC: ("tally", tally)})
    await group.open_partitions([(TOPIC, 0)])
    await fill(group, MOST - 10)
    assert group.checkpoint_index == 0
    directory = await killed(group, tmp_path / "log")
    for _ in range(2):  # what one life has left to replay counts in the next one
        again = Tally()
        group = await open_group(directory, commit={TOPIC: ("tally", again)})
        assert again.seen == tally.seen
        before = group.checkpoint_index
        await fill(group, 20)
        await checkpointed(group, before)
        assert len(group.log.segments()) == 0, "no segment was full"
        assert group.log.last_index - group.checkpoint_index <= 15
        await fill(group, MOST - 20)
        tally = again
        directory = await killed(group, directory)
    await (await open_group(directory, commit={TOPIC: ("tally", Tally())})).close()
