"""Recovers a replica of a log group from its log: the state replayed, the Raft core at the log's end.

`open_member` opens and replays the log in a thread, because a new log's first segment is filled with zeros
and a recovery reads the log. Meanwhile the loop serves the other groups of the node.

With one voter all entries on the disk are committed by the next no-op, so they are applied at once. With
several voters only a checkpoint's entries are known to be committed; the rest is followed, and applied when
it is known.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from lockstep.storage.append_codec import configuration_in
from lockstep.storage.checkpointer import CONFIGURATION_SECTION
from lockstep.storage.group_options import GroupOptions, fresh_incarnation, member_of
from lockstep.storage.log.data_log import DataLog
from lockstep.storage.log.file_system import FileSystem
from lockstep.storage.log.format import frame_bytes
from lockstep.storage.missing_records import MissingRecords, drop_obsolete, record_missing_records
from lockstep.storage.raft.configuration import Configuration, ConfigurationStack
from lockstep.storage.raft.raft import Raft
from lockstep.storage.raft.term_index import TermIndex
from lockstep.storage.state_machines import StateMachines
from lockstep.storage.threads import in_thread
from lockstep.storage.types import FrameKind, HardState


class RecoveredMember(NamedTuple):
    """A recovered replica: its open log and its Raft state."""

    log: DataLog
    raft: Raft
    applied_index: int
    """The last entry that is applied to the state."""
    possible_losses: list[MissingRecords]
    """Records missing at the beginning of a salvaged log and that may have been deleted; those that were not
    are in `DataLog.damage`."""


async def open_member(
    directory: Path,
    options: GroupOptions,
    state: StateMachines,
    clock_ms: Callable[[], int],
    monotonic: Callable[[], float],
    random_below: Callable[[int], int],
    fs: FileSystem | None = None,
) -> RecoveredMember:
    """Open the log in `directory` and replay it into `state`, which no other task may use until this returns.

    Raises: as `DataLog.open` and `recover`.
    """
    opened: list[DataLog] = []

    def run() -> RecoveredMember:
        log = DataLog.open(
            directory,
            options.group_id,
            options.log,
            fs,
            salvage=options.salvage,
            salvage_incarnation=fresh_incarnation(clock_ms()),
        )
        opened.append(log)
        raft, applied_index = recover(log, options, state, int(monotonic() * 1000), random_below)
        losses = record_missing_records(log, state.control) if log.is_search_due else []
        _advance_log_starts(log, state)
        if log.damage.missing:
            drop_obsolete(log, state.control)
        return RecoveredMember(log, raft, applied_index, losses)

    try:
        return await in_thread(run)
    except BaseException:
        for log in opened:
            await in_thread(log.close)
        raise


def recover(
    log: DataLog, options: GroupOptions, state: StateMachines, now_ms: int, random_below: Callable[[int], int]
) -> tuple[Raft, int]:
    """Returns the core, and the last entry that is applied to `state`, whose log starts are those of the
    checkpoint and the frames. Raises CorruptLog, NewerFormat."""
    has_no_promise = log.last_index == 0 and log.hard_state == HardState()
    # With an origin it is no new log: a founder that was stopped before its first vote keeps its identity.
    if options.incarnation and has_no_promise and not log.has_origin:
        log.save_hard_state(HardState(incarnation=options.incarnation))
    member_id = member_of(options.node_id, log.hard_state.incarnation)
    checkpoint = log.checkpoint
    state.restore(checkpoint.sections if checkpoint else {})
    base_index, base_term = (checkpoint.index, checkpoint.term) if checkpoint else (0, 0)
    encoded = checkpoint.sections.get(CONFIGURATION_SECTION) if checkpoint else None
    first = Configuration.decode(encoded) if encoded else _first_members(log, options, member_id)
    configurations = ConfigurationStack(first, base_index)
    terms = TermIndex(base_index, base_term)
    is_only_voter = first.voter_sets() == ((member_id,),)
    applied_index = base_index
    for frame in log.replay():
        terms.append(frame.index, frame.term, frame_bytes(frame))
        if frame.kind is FrameKind.CONFIGURATION:
            configurations.append(frame.index, configuration_in(frame))
            is_only_voter = False
        state.replay_appended(frame)
        if is_only_voter:
            state.apply_committed(frame, {})
            applied_index = frame.index
    log.forget_sections()
    state.control.just_closed.clear()
    log.forget_closed(state.control.is_closed)
    raft = Raft(
        member_id, configurations, log.hard_state, terms, base_index, options.raft, now_ms, random_below
    )
    return raft, applied_index


def _first_members(log: DataLog, options: GroupOptions, member_id: int) -> Configuration:
    """Returns the first membership of the log, which may differ from the options."""
    members = Configuration((member_id,) if options.voters is None else options.voters)
    if log.last_index or log.checkpoint is not None:
        members = Configuration((member_id,))  # older than the file: there were no groups of several
    return Configuration.decode(log.origin(members.encode()))


def _advance_log_starts(log: DataLog, state: StateMachines) -> None:
    """Advances the log starts to the first offsets that are left on the disk.

    With log.flush=os a power loss may lose a log start, but not the freeing that followed it. Otherwise the
    batches below the first offset were cleaned, and the log start stays where it is. So it does where records
    are known to be missing, since a start with flushes.
    """
    if log.options.flush:
        return
    for partition in state.control.partitions.values():
        if partition.local_id in log.damage.missing:
            continue
        first_offset = log.first_offset(partition.local_id)
        there = partition.next_offset if first_offset is None else first_offset
        partition.log_start_offset = max(partition.log_start_offset, there)
