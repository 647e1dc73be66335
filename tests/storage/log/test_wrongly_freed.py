"""Freed files that name segments which are whole: these stay in the log, and the freed files go."""

from __future__ import annotations

from pathlib import Path

import pytest

from lockstep.storage.log import inspect
from lockstep.storage.log.data_log import DataLog
from lockstep.storage.log.freed_segments import freed_file_name
from lockstep.storage.types import CorruptLog
from tests.storage.log.crash_world import DIRECTORY, GROUP
from tests.storage.log.joined_logs import OPTIONS, fill, on_a_simulated_disk
from tests.storage.log.simulated_disk import Image, SimulatedFileSystem
from tests.storage.log.test_join_faults import joined_names
from tests.storage.log.test_lost_segments import Files, checkpointed, closed_logs, file_of, opened, without
from tests.storage.log.test_rot import on_disk
from tests.storage.log.test_segment_compaction import agree, two_logs
from tests.support.cases import each_case


def freed_names(disk: SimulatedFileSystem) -> list[str]:
    return [name for name in disk.list_dir(DIRECTORY) if name.endswith(".freed")]


@each_case("salvage", [False, True])
def test_a_freed_file_of_any_live_segment_hides_nothing(salvage: bool) -> None:
    files, model, sequences = closed_logs()
    last = max(int(name[:16]) for name in files if name.endswith(".segment"))
    for run in [*((s, s) for s in range(1, last + 2)), (1, 1 << 50), (2, 3), (sequences[-1], last)]:
        log, disk = opened(files | {freed_file_name(*run): b""}, salvage)
        assert log.hard_state.incarnation == 0
        agree(log, model)
        assert freed_names(disk) == []
        known = {file_of(each.sequence) for each in log._table} & set(log.report.wrongly_freed)
        assert known == {file_of(each.sequence) for each in log._table if run[0] <= each.sequence <= run[1]}
        log.close()
        log, _ = opened(dict(disk.now().files))
        assert log.report.wrongly_freed == ()


def middle_freed() -> tuple[Files, DataLog, int, int]:
    """The files of a log whose segments from one to another were freed behind one that stays, before their
    own are gone."""
    log, _, disk = two_logs()
    first, *others = [each for each in log.segments() if each.sequence < checkpointed(log)[0]]
    sequences = {each.sequence for each in others}
    log._maintenance.queue_dead(log._table.remove([s for s in log._table if s.sequence in sequences]))
    log.prepare_now()
    assert first.sequence == 1
    log.close()
    return dict(disk.now().files), log, others[0].sequence, others[-1].sequence


def test_what_was_freed_stays_so_and_a_run_is_cut_at_a_segment_that_is_whole() -> None:
    whole, _, _ = closed_logs()
    files, _, first, last = middle_freed()
    run = freed_file_name(first, last)
    assert run in files and last - first >= 2
    log, disk = opened(files)
    assert (log.report.wrongly_freed, freed_names(disk)) == ((), [run])
    log.close()
    name = file_of(first + 1)
    back = {each: whole[each] for each in (name, name.replace(".segment", ".index"))}
    log, disk = opened(files | back)
    assert log.report.wrongly_freed == (name,) and log.has_segment(first + 1)
    assert set(freed_names(disk)) == {freed_file_name(first), freed_file_name(first + 2, last)}
    log.close()
    log, _ = opened(files | back | {name: bytes(len(whole[name]))})
    assert log.report.wrongly_freed == () and not log.has_segment(first + 1), "used for something else"


def test_a_freed_file_of_a_joined_segment_hides_nothing() -> None:
    log, model, make, disk = on_a_simulated_disk(4)
    log.join()
    fill(log, model, make, 2)
    (name,) = joined_names(disk)
    log.close()
    disk.close(disk.open(DIRECTORY / freed_file_name(4), create=True))
    log = DataLog.open(DIRECTORY, GROUP, OPTIONS, disk)
    assert log.report.wrongly_freed == (name,) and log.is_joined(4) and freed_names(disk) == []


def test_files_of_the_segments_of_a_joined_one_that_was_freed_stay_leftovers() -> None:
    """They hold what was cleaned away since."""
    log, model, make, disk = on_a_simulated_disk(4)
    former = dict(disk.now().files)
    log.join()
    fill(log, model, make, 2)
    log.close()
    (name,) = joined_names(disk)
    files = without(dict(disk.now().files), name, name.replace(".segment", ".index"))
    back = {n: data for n, data in former.items() if n.startswith(("0000000000000003.", "0000000000000004."))}
    disk = SimulatedFileSystem(Image(files | back | {freed_file_name(1, 4): b""}))
    log = DataLog.open(DIRECTORY, GROUP, OPTIONS, disk)
    assert log.report.wrongly_freed == () and not log.has_segment(4)


def test_without_a_checkpoint_a_freed_file_still_shows_deleted_records() -> None:
    files, _, _, _ = middle_freed()
    checkpoints = [name for name in files if name.startswith("checkpoint")]
    with pytest.raises(CorruptLog, match="no checkpoint is whole"):
        opened(without(files, *checkpoints))


def test_a_stopped_log_is_verified_with_the_segment(tmp_path: Path) -> None:
    files, _, _ = closed_logs()
    for each in ("as-it-was", "with-a-freed-file"):
        (tmp_path / each).mkdir()
    on_disk(Image(files), tmp_path / "as-it-was")
    on_disk(Image(files | {freed_file_name(2): b""}), tmp_path / "with-a-freed-file")
    before, after = (inspect.verify(tmp_path / each, GROUP) for each in ("as-it-was", "with-a-freed-file"))
    assert (after.records, after.is_corrupt) == (before.records, False)
    assert file_of(2) in after.notes[0] and not before.notes
