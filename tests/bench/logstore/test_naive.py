"""The naive store's second log: every batch again."""

from __future__ import annotations

from pathlib import Path

from bench.load.wire import record_batch
from bench.logstore.naive import SecondLog
from lockstep.protocol.records.batch import patch_whole, read_header
from lockstep.storage.log.file_system import RealFileSystem
from lockstep.storage.log.inspect import GroupLog
from lockstep.storage.log.options import LogOptions
from lockstep.storage.types import DirectoryEntry


def test_the_second_log_holds_every_batch_again_in_one_frame_per_write(tmp_path: Path) -> None:
    second = SecondLog(tmp_path / "second", LogOptions(segment_bytes=1 << 20), RealFileSystem())
    for turn in range(3):
        for place in range(2):
            batch = bytearray(record_batch(2, 64, 0))
            offset = turn * 4 + place * 2
            patch_whole(batch, offset, 1)
            crc = read_header(batch).crc
            second.replay(DirectoryEntry(1, offset, 2, len(batch), crc, 1, 0), batch, 1000 + turn)
        second.write()
    second.write()
    second.close()
    frames = [scanned.frame() for _, scanned in GroupLog(tmp_path / "second", 1001).frames()]
    assert [(frame.record_count, len(frame.directory)) for frame in frames] == [(4, 2)] * 3
    assert sum(entry.length for frame in frames for entry in frame.directory) == 6 * len(batch)


def test_a_frame_of_the_second_log_never_outgrows_a_segment(tmp_path: Path) -> None:
    second = SecondLog(tmp_path / "second", LogOptions(segment_bytes=1 << 20), RealFileSystem())
    batch = record_batch(1, 200_000, 0)
    for place in range(6):
        second.replay(DirectoryEntry(1, place, 1, len(batch), 0, 0, 0), batch, 1)
    second.write()
    assert second.log.last_index >= 3
    second.close()
