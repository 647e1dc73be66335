"""The target's rule: terms, gaps, duplicates, what is stored together, what may be acknowledged."""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lockstep.player.core.messages import Batch, Hello, Part, dummy
from lockstep.player.target.target_position import (
    Accepted,
    Gap,
    Mark,
    StaleTerms,
    StreamRejected,
    TargetPosition,
)

LOG_ID = "cluster/topic/0"


def hello(player_term: int, target_term: int, first_position: int = 0) -> Hello:
    return Hello(LOG_ID, player_term, target_term, first_position)


def batch(previous: int, *positions: int, dummies: Sequence[int] = ()) -> Batch:
    parts = [dummy(each) if each in dummies else Part(each, f"@{each}", 1) for each in positions]
    return Batch(previous, parts, len(parts))


def greeted(position: int = 10, terms: tuple[int, int] = (3, 2)) -> TargetPosition:
    marks = TargetPosition(LOG_ID, Mark(LOG_ID, 3, 1, position))
    marks.hello(hello(*terms))
    marks.complete_handshake(position)
    return marks


def positions(accepted: Accepted) -> tuple[list[int], int]:
    return [part.position for part in accepted.parts], accepted.mark.position


def test_a_new_target_begins_at_the_given_position() -> None:
    marks = TargetPosition(LOG_ID, None)
    mark = marks.hello(hello(1, 1, first_position=40))
    assert mark == Mark(LOG_ID, 1, 1, 39)
    assert marks.complete_handshake(39) == 39
    assert marks.hello(hello(2, 1, first_position=90)).position == 39  # it is not new any more


def test_a_pair_of_terms_is_greeted_once_and_never_goes_back() -> None:
    marks = greeted(terms=(3, 2))
    for terms in ((3, 2), (3, 1), (2, 9)):
        with pytest.raises(StaleTerms) as refused:
            marks.hello(hello(*terms))
        assert refused.value.mark.terms == (3, 2)
    assert marks.hello(hello(4, 1)).terms == (4, 1)


def test_a_mark_belongs_to_one_log() -> None:
    with pytest.raises(StreamRejected, match="the mark of cluster/topic/0, not of cluster/topic/1"):
        TargetPosition(LOG_ID, None).hello(Hello("cluster/topic/1", 1, 1, 0))


def test_an_older_stream_is_ignored_from_the_hello_on() -> None:
    marks = greeted(terms=(3, 2))
    under_way = marks.receive((3, 2), batch(10, 11, 12))
    mark = marks.hello(hello(3, 3))
    assert mark.position == 10
    with pytest.raises(StaleTerms):
        marks.receive((3, 2), batch(12, 13))
    marks.on_stored(under_way)  # the store took it before the new terms
    assert marks.complete_handshake(12) == 12
    assert positions(marks.receive((3, 3), batch(12, 13))) == ([13], 13)


def test_what_an_older_stream_could_not_store_comes_again() -> None:
    marks = greeted(terms=(3, 2))
    marks.receive((3, 2), batch(10, 11, 12))
    marks.hello(hello(3, 3))
    assert marks.complete_handshake(10) == 10
    assert positions(marks.receive((3, 3), batch(10, 11, 12))) == ([11, 12], 12)


def test_batches_may_be_received_before_the_one_before_is_stored() -> None:
    marks = greeted()
    first = marks.receive((3, 2), batch(10, 11, 12))
    second = marks.receive((3, 2), batch(12, 15))
    assert (positions(first), positions(second)) == (([11, 12], 12), ([15], 15))
    assert marks.stored_position == 10  # what a heartbeat is answered with
    assert (marks.on_stored(first), marks.on_stored(second)) == (12, 15)
    assert marks.stored_position == 15


def test_gaps_are_refused() -> None:
    marks = greeted()
    for wrong in (batch(11, 12), batch(8, 12), batch(8, 9, 12), batch(9, 11)):
        with pytest.raises(Gap):
            marks.receive((3, 2), wrong)
    assert positions(marks.receive((3, 2), batch(10, 12))) == ([12], 12)


def test_what_is_known_is_acknowledged_and_not_applied_again() -> None:
    marks = greeted()
    assert positions(marks.receive((3, 2), batch(7, 8, 10))) == ([], 10)
    assert positions(marks.receive((3, 2), batch(7, 8, 10, 14))) == ([14], 14)
    again = marks.receive((3, 2), batch(10, 14))
    assert positions(again) == ([], 14)
    assert marks.stored_position == 10
    assert marks.on_stored(again) == 14  # behind the one before it, in order
    assert marks.on_stored(Accepted((), Mark(LOG_ID, 3, 2, 12))) == 14


def test_dummies_move_the_mark_only() -> None:
    marks = greeted()
    assert positions(marks.receive((3, 2), batch(10, 11, 14, dummies=(14,)))) == ([11], 14)
    assert positions(marks.receive((3, 2), batch(14, 20, dummies=(20,)))) == ([], 20)


@settings(max_examples=200, deadline=None)
@given(
    log=st.lists(st.booleans(), min_size=1, max_size=20),
    story=st.lists(st.tuples(st.sampled_from("dsch"), st.integers(0, 20), st.integers(1, 5)), max_size=40),
)
def test_each_part_is_applied_in_order_once(log: list[bool], story: list[tuple[str, int, int]]) -> None:
    """Streams that begin anywhere at or before the mark, old ones, crashes: against a list.

    `log` says which positions hold a part; the others are dummies. d: a batch from somewhere, s: the oldest
    received is stored, c: a crash, h: a new stream.
    """
    stored = Mark(LOG_ID, 1, 0, -1)
    applied: list[int] = []
    marks = TargetPosition(LOG_ID, stored)
    pending: list[Accepted] = []
    term = 0
    for kind, start, count in story:
        if kind == "h":
            term += 1
            mark = marks.hello(hello(1, term))
            stored = Mark(LOG_ID, *mark.terms, stored.position)
            pending.clear()
            assert marks.complete_handshake(stored.position) == len(applied_to(log, stored.position)) - 1
        elif kind == "c":
            marks = TargetPosition(LOG_ID, stored)
            pending.clear()
        elif kind == "s" and pending:
            accepted = pending.pop(0)
            stored = accepted.mark
            applied += [part.position for part in accepted.parts]
            assert marks.on_stored(accepted) == stored.position
        elif kind == "d":
            chosen = range(min(start, len(log)), min(start + count, len(log)))
            if chosen:
                dummies = [position for position in chosen if not log[position]]
                terms = (1, term - count % 2)
                try:
                    pending.append(marks.receive(terms, batch(chosen[0] - 1, *chosen, dummies=dummies)))
                    assert terms == stored.terms
                except StreamRejected:
                    assert terms != stored.terms or chosen[0] > marks.received_position + 1
        assert applied == [position for position in applied_to(log, stored.position) if log[position]]
        assert marks.stored_position <= stored.position


def applied_to(log: list[bool], position: int) -> list[int]:
    return list(range(min(position + 1, len(log))))
