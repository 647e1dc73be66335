"""Steps of the Raft core for `python -m bench micro`: one entry from proposal to commit, one as a follower.

Owns: cores that are brought to where a step can be repeated for ever: what is committed is forgotten again,
as a checkpoint would have it. No disk, no socket: flushes and responses are reported at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from lockstep.storage.raft.configuration import Configuration, ConfigurationStack
from lockstep.storage.raft.messages import Append, AppendResponse, VoteResponse
from lockstep.storage.raft.raft import Raft
from lockstep.storage.raft.ready import Ready
from lockstep.storage.raft.settings import RaftSettings
from lockstep.storage.raft.term_index import TermIndex
from lockstep.storage.types import HardState

ENTRY_BYTES = 1100
KEPT_ENTRIES = 1000
"""How many committed entries the core still knows."""
_ME, _PEER, _OTHER = 1, 2, 3
_START_MS = 1000


def _core(term: int) -> Raft:
    stack = ConfigurationStack(Configuration((_ME, _PEER, _OTHER)), 0)
    hard_state = HardState(term, -1)
    return Raft(_ME, stack, hard_state, TermIndex(0, 0), 0, RaftSettings(), _START_MS, lambda n: 0)


def _drain(raft: Raft) -> Ready:
    """Everything to do, with a hard state flushed at once."""
    ready = raft.ready()
    if ready.hard_state is not None:
        raft.on_hard_state_persisted(ready.hard_state)
        raft.ready()
    return ready


def _acknowledge(raft: Raft, index: int) -> None:
    raft.on_persisted(index, raft.term, raft.truncation_count)
    raft.step(AppendResponse(_PEER, _ME, raft.term, index, index, 0, 0, raft.now_ms), raft.now_ms)
    raft.step(AppendResponse(_OTHER, _ME, raft.term, index, index, 0, 0, raft.now_ms), raft.now_ms)


def _leader() -> Raft:
    """Serves, of three."""
    raft = _core(0)
    raft.tick(raft.election_due_ms)
    raft.step(VoteResponse(_PEER, _ME, raft.term + 1, True, True), raft.now_ms)
    _drain(raft)
    raft.step(VoteResponse(_PEER, _ME, raft.term, False, True), raft.now_ms)
    _drain(raft)
    _acknowledge(raft, raft.last_index)
    _drain(raft)
    assert raft.is_serving
    return raft


def leading_step() -> Callable[[], object]:
    """An entry is proposed and sent to two peers, flushed here, acknowledged by both, committed."""
    raft = _leader()

    def step() -> int:
        index = raft.propose(ENTRY_BYTES)
        raft.ready()
        _acknowledge(raft, index)
        raft.ready()
        assert raft.commit_index == index
        raft.on_checkpoint(index - KEPT_ENTRIES)
        return index

    return step


def following_step() -> Callable[[], object]:
    """An entry of a leader is taken, flushed, and acknowledged."""
    raft = _core(1)

    def step() -> int:
        last = raft.last_index
        runs = [(last + 1, 1)]
        sizes = [ENTRY_BYTES]
        term = 1 if last else 0
        append = Append(_PEER, _ME, 1, last, term, runs, last + 1, (), last, raft.now_ms, sizes=sizes)
        raft.step(append, raft.now_ms)
        raft.ready()
        raft.on_persisted(last + 1, 1, raft.truncation_count)
        responses = raft.ready().messages
        assert len(responses) == 1 and raft.last_index == last + 1
        raft.on_checkpoint(last - KEPT_ENTRIES)
        return last

    return step


def raft_steps() -> Iterator[tuple[str, Callable[[], object]]]:
    """The steps of the Raft core."""
    yield "Raft: entry led to its commit, 3 members", leading_step()
    yield "Raft: entry followed", following_step()
