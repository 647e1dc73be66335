"""Records what each member's Raft core shows after each of its steps, for the model to judge.

`recording()` patches the core's constructor, `ready` (which the shell calls after every input) and
`on_hard_state_persisted`. It only reads, so the run and its trace hash stay as they are. A line is written
where something observable changed. Entries that a checkpoint covers are known from what the member, or for
a shipped one another member, was seen to hold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from lockstep.storage.raft.raft import Raft
from lockstep.storage.raft.ready import Ready
from lockstep.storage.raft.transitions import Role
from lockstep.storage.types import HardState
from tests.model.events import NOBODY, Entry, Event, HardPair, Trace
from tests.sim.run import drawn, run_seed

ROLES = {
    Role.FOLLOWER: "follower",
    Role.PRE_CANDIDATE: "follower",  # it has promised nothing yet
    Role.CANDIDATE: "candidate",
    Role.LEADER: "leader",
}


class Seen:
    """One member as it was seen last; `log` outlives the member's process."""

    __slots__ = ("commit", "core", "hard", "last", "log", "truncation_count")

    def __init__(self) -> None:
        self.core: Raft | None = None
        self.log: list[Entry] = []
        self.truncation_count = 0
        self.commit = 0
        self.hard: HardPair = (0, NOBODY)
        self.last: Event | None = None


class Recorder:
    """Collects the events of one run."""

    def __init__(self, voters: tuple[int, ...]) -> None:
        self.trace = Trace(voters, [])
        self._members: dict[int, Seen] = {}

    def started(self, core: Raft) -> None:
        """A process began with this core."""
        seen = self._members.setdefault(core.member_id, Seen())
        seen.core, seen.truncation_count = core, core.truncation_count
        seen.hard = (core.term, core.voted_for)
        self._observe(core, seen, "start")

    def stepped(self, core: Raft) -> None:
        """`ready` was called; a core that is not the member's newest is of a process that is gone."""
        seen = self._members.get(core.member_id)
        if seen is not None and seen.core is core:
            self._observe(core, seen, "step")

    def hard_state_is_durable(self, core: Raft, hard_state: HardState) -> None:
        seen = self._members.get(core.member_id)
        if seen is not None and seen.core is core:
            seen.hard = (hard_state.term, hard_state.voted_for)

    def _observe(self, core: Raft, seen: Seen, kind: str) -> None:
        kept = len(seen.log)
        added: tuple[Entry, ...] = ()
        if kind == "start" or core.truncation_count != seen.truncation_count or core.last_index != kept:
            shipped, kept, added = self._log_changes(core, seen)
            if shipped and kind == "step":
                kind = "install"
        seen.truncation_count = core.truncation_count
        event = Event(
            core.member_id,
            kind,
            core.term,
            core.voted_for,
            ROLES[core.role],
            kept,
            added,
            core.commit_index,
            core.persisted_index,
            core.follower_state.verified_index,
            seen.hard,
        )
        last = seen.last
        if kind == "step" and last is not None and not added and kept == len(seen.log):
            same = (
                (last.term, last.voted_for, last.role, last.commit, last.persisted, last.hard),
                (event.term, event.voted_for, event.role, event.commit, event.persisted, event.hard),
            )
            if same[0] == same[1] and (event.role != "follower" or last.verified == event.verified):
                return
        seen.log = seen.log[:kept] + list(added) if kept < len(seen.log) else seen.log + list(added)
        seen.commit, seen.last = event.commit, event
        self.trace.events.append(event)

    def _log_changes(self, core: Raft, seen: Seen) -> tuple[bool, int, tuple[Entry, ...]]:
        """(a checkpoint was shipped, how much of the log stayed, what follows)."""
        terms = core.terms
        base, last = terms.base_index, terms.last_index
        log = seen.log
        shipped = base > 0 and (base > len(log) or log[base - 1][0] != terms.term_at(base))
        if shipped:
            log = self._prefix(base, terms.term_at(base))
        configurations = dict(core.configurations.items_between(base + 1, last))

        def entry(index: int) -> Entry:
            found = configurations.get(index)
            term = terms.term_at(index)
            assert term is not None
            return term, found.voter_sets() if found is not None else None

        if (
            not shipped
            and core.truncation_count == seen.truncation_count
            and last >= len(log)
            and seen.last is not None
        ):
            kept = len(log)
            return False, kept, tuple(entry(index) for index in range(kept + 1, last + 1))
        now = log[:base] + [entry(index) for index in range(base + 1, last + 1)]
        kept = 0
        for before, after in zip(seen.log, now, strict=False):
            if before != after:
                break
            kept += 1
        return shipped, kept, tuple(now[kept:])

    def _prefix(self, base: int, term: int | None) -> list[Entry]:
        for other in self._members.values():
            if len(other.log) >= base and other.log[base - 1][0] == term:
                return other.log[:base]
        raise ValueError(f"nobody was seen to hold entry {base} of term {term}")


@contextmanager
def recording(voters: tuple[int, ...]) -> Iterator[Recorder]:
    """Record every core that is made and driven within."""
    recorder = Recorder(voters)
    real_init: Callable[..., None] = Raft.__init__
    real_ready, real_persisted = Raft.ready, Raft.on_hard_state_persisted

    def init(self: Raft, *args: Any, **named: Any) -> None:
        real_init(self, *args, **named)
        recorder.started(self)

    def ready(self: Raft) -> Ready:
        done = real_ready(self)
        recorder.stepped(self)
        return done

    def on_hard_state_persisted(self: Raft, hard_state: HardState) -> None:
        recorder.hard_state_is_durable(self, hard_state)
        real_persisted(self, hard_state)

    with (
        patch.object(Raft, "__init__", init),
        patch.object(Raft, "ready", ready),
        patch.object(Raft, "on_hard_state_persisted", on_hard_state_persisted),
    ):
        yield recorder


def recorded_seed(seed: int, workload: str | None = None) -> Trace:
    """Run one seed of the simulator and give its trace. AssertionError where it broke a rule."""
    _, options = drawn(seed, workload, {}, None)
    with recording(tuple(range(1, options.nodes + 1))) as recorder:
        outcome = run_seed(seed, workload)
    assert not outcome.rule, f"seed {seed}: {outcome.rule}: {outcome.violation}"
    return recorder.trace


def recorded_groups(voters: int, first_seed: int = 1) -> Iterator[Trace]:
    """The traces of the seeds from `first_seed` on that mean groups of so many voters."""
    seed = first_seed
    while True:
        if drawn(seed, None, {}, None)[1].nodes == voters:
            yield recorded_seed(seed)
        seed += 1
