"""Names in a log's directory that are not the log's: ignored, and left alone."""

from __future__ import annotations

from pathlib import Path

from lockstep.storage.log import inspect
from lockstep.storage.log.data_log import DataLog
from tests.storage.log.crash_world import GROUP
from tests.storage.log.joined_logs import two_checkpoints
from tests.storage.log.simulated_disk import Image
from tests.storage.log.test_installation import SMALL
from tests.storage.log.test_lost_segments import closed_logs
from tests.storage.log.test_rot import on_disk

STRANGE = (
    "checkpoint-abc",
    "checkpoint-00000000000000000061.bak",
    "checkpoint-again-1",
    "incoming-abc",
    "incoming-0000000000000001-00000000000000000061.bak",
    "5.segment",
    "²².segment",
    "1-2-3.segment",
    "3.index",
    "2026-11-30.index",
    "5.freed",
    "².freed",
)


def test_other_names_are_ignored_and_stay(tmp_path: Path) -> None:
    files, model, _ = closed_logs()
    on_disk(Image(files), tmp_path)
    for name in STRANGE:
        (tmp_path / name).write_bytes(b"an operator's own")
    for name in ("x.tmp", "0000000000009999.index"):
        (tmp_path / name).mkdir()
    assert not inspect.verify(tmp_path, GROUP).is_corrupt
    log = DataLog.open(tmp_path, GROUP, SMALL)
    assert (log.last_index, log.report.ignored_checkpoints) == (model.last_index, ())
    two_checkpoints(log, model)
    log.close()
    assert {*STRANGE, "x.tmp"} <= {path.name for path in tmp_path.iterdir()}
