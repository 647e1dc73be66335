"""Names in a log's directory that are not the log's: ignored, and left alone."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from lockstep.storage.log import inspect
from lockstep.storage.log.data_log import DataLog
from tests.storage.log.crash_world import GROUP
from tests.storage.log.joined_logs import two_checkpoints
from tests.storage.log.simulated_disk import Image
from tests.storage.log.test_installation import SMALL
from tests.storage.log.test_lost_segments import closed_logs, file_of
from tests.storage.log.test_rot import on_disk
from tests.support.cases import each_case

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


@each_case("make", [os.mkfifo, os.mkdir, lambda path: os.symlink(path, path)])
def test_what_is_no_file_counts_as_a_lost_file(tmp_path: Path, make: Callable[[Path], None]) -> None:
    files, model, sequences = closed_logs()
    tmp_path = Path(tempfile.mkdtemp(dir=tmp_path))
    on_disk(Image(files), tmp_path)
    lost, index = file_of(sequences[1]), file_of(sequences[2]).replace(".segment", ".index")
    for name in (lost, index):
        (tmp_path / name).unlink()
        make(tmp_path / name)
    assert inspect.verify(tmp_path, GROUP).is_corrupt
    log = DataLog.open(tmp_path, GROUP, SMALL)
    assert [lost in each for each in log.report.lost_files] == [True]
    assert log.last_index == model.last_index
    log.close()
