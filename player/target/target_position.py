"""The target's rule: the current stream's terms, the entries that follow on the stored ones,
acknowledgements.

Owns: the mark of one log, as it is stored in the target's own store, in the same transaction as the changes
of the entries; the position received and not stored yet. Invariants: the stored pair of terms never goes
back; stored entries follow on one another without a gap; no entry is acknowledged that is not stored.

A shell calls, for each stream: `hello`; then it persists that mark: where the store has one with lower terms,
only its terms, since an older stream may be storing a position right now; where it has higher ones, that
fails. Then it ends the work of older streams, reads the position from its store, and responds to the
Hello with `complete_handshake`. For each batch: `receive`, then one transaction with its parts applied and
its position stored, which must fail where the store does not have the same terms any more, then `on_stored`,
whose position may be acknowledged; an acknowledgement of several batches may go with the last. Where anything
fails, the shell closes the stream. The response to a heartbeat is `stored_position`, also while a transaction
runs. So a process of this target that was replaced, and still runs, does no harm: the store decides what
counts. Does not: apply anything, or know what a payload is. Source: LogPlayer paper, section 2.1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from lockstep.player.core.messages import NOTHING, Batch, Hello, Part


@dataclass(frozen=True, slots=True)
class Mark:
    """The record that a target stores beside its data, one for each log."""

    log_id: str
    player_term: int
    target_term: int
    position: int
    """Everything up to there is stored."""

    @property
    def terms(self) -> tuple[int, int]:
        return self.player_term, self.target_term


class StreamRejected(Exception):
    """The stream is to be closed; none of the message was taken."""


class StaleTerms(StreamRejected):
    """A newer stream was opened: respond with the terms of that one."""

    def __init__(self, mark: Mark) -> None:
        super().__init__(f"stream {mark.player_term}.{mark.target_term} has done its handshake")
        self.mark = mark


class Gap(StreamRejected):
    """A received batch does not follow on the one received before."""


@dataclass(frozen=True, slots=True)
class Accepted:
    """Apply `parts` and store `mark`, in one transaction; where both change nothing, just acknowledge."""

    parts: Sequence[Part]
    mark: Mark


class TargetPosition:
    """See the module. `stored` is what the store has; None where it has nothing for this log."""

    __slots__ = ("log_id", "mark", "received_position")

    def __init__(self, log_id: str, stored: Mark | None) -> None:
        self.log_id = log_id
        self.mark = stored or Mark(log_id, 0, 0, NOTHING)
        """The stored mark, with a handshake that is still being persisted."""
        self.received_position = self.mark.position
        """The position of the last received part; parts above the mark are being stored."""

    def hello(self, hello: Hello) -> Mark:
        """The mark to persist now. Raises StaleTerms, and StreamRejected for another log.

        From here on nothing of an older stream is received.
        """
        if hello.log_id != self.log_id:
            raise StreamRejected(f"this is the mark of {self.log_id}, not of {hello.log_id}")
        if (hello.player_term, hello.target_term) <= self.mark.terms:
            raise StaleTerms(self.mark)
        is_new = self.mark.terms == (0, 0)
        position = hello.first_position - 1 if is_new else self.mark.position
        self.mark = Mark(self.log_id, hello.player_term, hello.target_term, position)
        return self.mark

    def complete_handshake(self, position: int) -> int:
        """The store has `position`, and nothing older is under way: the response to the Hello."""
        self.mark = replace(self.mark, position=position)
        self.received_position = position
        return position

    def receive(self, terms: tuple[int, int], batch: Batch) -> Accepted:
        """The parts to store of a batch from the stream with these terms. Raises StaleTerms, Gap."""
        if terms != self.mark.terms:
            raise StaleTerms(self.mark)
        previous, parts = batch.previous_position, batch.parts
        known_count = 0
        while known_count < len(parts) and parts[known_count].position <= self.received_position:
            previous = parts[known_count].position
            known_count += 1
        if known_count < len(parts):
            if previous != self.received_position:
                came = f"came {parts[known_count].position}, which follows {previous}"
                raise Gap(f"after {self.received_position} {came}")
            parts = parts[known_count:]
            self.received_position = parts[-1].position
        else:
            parts = ()
        mark = replace(self.mark, position=self.received_position)
        return Accepted([part for part in parts if not part.is_dummy], mark)

    def on_stored(self, accepted: Accepted) -> int:
        """The transaction is committed: the position that may be acknowledged."""
        if accepted.mark.position > self.mark.position:
            self.mark = replace(self.mark, position=accepted.mark.position)
        return self.mark.position

    @property
    def stored_position(self) -> int:
        """The response to a heartbeat."""
        return self.mark.position
