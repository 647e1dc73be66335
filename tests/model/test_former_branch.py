"""What TLC found about cuts, on real bytes: model/README.md, "What TLC found".

It is a fact that the abstract disk allows for, not a wish: if a change of the format ends it, AbstractDisk
can be made stronger and this test turned round.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from lockstep.storage.log.data_log import DataLog, LogOptions
from lockstep.storage.log.format import BATCH_PREFIX_BYTES
from tests.storage.log.frames import FrameMaker

GROUP = 1
SECTOR = 512
SEGMENT = "0000000000000001.segment"
OPTIONS = LogOptions(segment_bytes=1 << 20)
FILLER_BYTES = 220 + 7 * SECTOR
"""So that the frame after two markers begins with a page, and its marker ends the one before. (Within a page
the zeros that every write ends with have overwritten the former branch.)"""


def test_a_torn_write_after_a_cut_may_leave_a_frame_of_the_former_branch(tmp_path: Path) -> None:
    maker = FrameMaker()
    log = DataLog.open(tmp_path / "first", GROUP, OPTIONS)
    log.append([maker.data((1, 1, bytes(FILLER_BYTES - BATCH_PREFIX_BYTES)))])
    log.flush()
    shutil.copytree(tmp_path / "first", tmp_path / "second")  # the process dies; the next begins a generation
    log.close()
    log = DataLog.open(tmp_path / "second", GROUP, OPTIONS)
    former = maker.copy()
    log.append([former.data((1, 1, b"former branch"))])
    log.flush()
    log.truncate(1)
    before = (tmp_path / "second" / SEGMENT).read_bytes()
    maker.term = 2
    log.append([maker.data((1, 1, b"newer leader!"))])
    after = (tmp_path / "second" / SEGMENT).read_bytes()
    shutil.copytree(tmp_path / "second", tmp_path / "third")
    log.close()

    changed = [
        at for at in range(0, len(after), SECTOR) if before[at : at + SECTOR] != after[at : at + SECTOR]
    ]
    assert len(changed) == 2  # the marker's sector, and the frame's
    torn = after[: changed[1]] + before[changed[1] :]
    (tmp_path / "third" / SEGMENT).write_bytes(torn)

    log = DataLog.open(tmp_path / "third", GROUP, OPTIONS)
    assert (log.last_index, log.last_term) == (
        2,
        1,
    )  # no more than the former log, and nothing acknowledged is lost
    assert bytes(list(log.replay())[1].payloads[0]).endswith(b"former branch")
    log.close()
