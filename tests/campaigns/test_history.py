"""The checker accepts a sound history and catches every planted loss, repeat, swap, gap and damage."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.campaigns.history import DamagedRecord, Verdict, WriterHistory, check, make_value, parse_value
from tests.support.cases import each_case

Read = dict[int, list[tuple[int, bytes | None]]]


def sound_history(seed: int = 1, records: int = 200) -> tuple[list[WriterHistory], Read]:
    """Two writers (one idempotent) over two partitions; some sends unacknowledged, some of those present."""
    rng = random.Random(seed)
    writers = [WriterHistory("a", "x", True), WriterHistory("b", "x", False)]
    read: Read = {0: [], 1: []}
    for _ in range(records):
        writer = rng.choice(writers)
        sequence = writer.sent
        writer.sent += 1
        fate = rng.random()
        if fate < 0.1:
            continue  # never arrived, never acknowledged
        partition = rng.randrange(2)
        offset = len(read[partition])
        read[partition].append((offset, make_value(writer.name, sequence, b"p" * rng.randrange(9))))
        if fate < 0.9:
            writer.acked[sequence] = (partition, offset)
    return writers, read


def renumber(read: Read) -> None:
    for partition, records in read.items():
        read[partition] = [(offset, value) for offset, (_, value) in enumerate(records)]


def first_acked(writer: WriterHistory) -> tuple[int, int, int]:
    sequence = next(iter(writer.acked))
    return (sequence, *writer.acked[sequence])


def forget_places(writers: list[WriterHistory]) -> None:
    for writer in writers:
        writer.acked = {sequence: (partition, -1) for sequence, (partition, _) in writer.acked.items()}


def lose_in_the_middle(writers: list[WriterHistory], read: Read) -> None:
    _, partition, offset = first_acked(writers[0])
    del read[partition][offset]
    renumber(read)
    forget_places(writers)


def lose_the_tail(writers: list[WriterHistory], read: Read) -> None:
    del read[0][-5:]


def lose_of_the_plain_writer(writers: list[WriterHistory], read: Read) -> None:
    _, partition, offset = first_acked(writers[1])
    del read[partition][offset]
    renumber(read)
    forget_places(writers)


def repeat(writers: list[WriterHistory], read: Read) -> None:
    _, partition, offset = first_acked(writers[0])
    read[partition].append((len(read[partition]), read[partition][offset][1]))


def repeat_of_an_unacknowledged(writers: list[WriterHistory], read: Read) -> None:
    sequence, partition, offset = first_acked(writers[0])
    del writers[0].acked[sequence]
    read[1 - partition].append((len(read[1 - partition]), read[partition][offset][1]))


def swap(writers: list[WriterHistory], read: Read) -> None:
    places = [place for _, place in sorted(writers[0].acked.items()) if place[0] == 0]
    one, other = places[0][1], places[1][1]
    read[0][one], read[0][other] = (one, read[0][other][1]), (other, read[0][one][1])
    forget_places(writers)


def gap(writers: list[WriterHistory], read: Read) -> None:
    offset, value = read[1][-1]
    read[1][-1] = (offset + 1, value)
    forget_places(writers)


def damage(writers: list[WriterHistory], read: Read) -> None:
    offset, value = read[1][3]
    assert value is not None
    read[1][3] = (offset, value[:-1] + bytes([value[-1] ^ 1]))


def vanish(writers: list[WriterHistory], read: Read) -> None:
    read[1][3] = (3, None)


def invent(writers: list[WriterHistory], read: Read) -> None:
    read[0].append((len(read[0]), make_value("a", writers[0].sent, b"")))


def invent_a_writer(writers: list[WriterHistory], read: Read) -> None:
    read[0].append((len(read[0]), make_value("z", 0, b"")))


def misplace(writers: list[WriterHistory], read: Read) -> None:
    sequence, partition, offset = first_acked(writers[1])
    writers[1].acked[sequence] = (partition, offset + 1)


def test_a_sound_history_has_no_problem() -> None:
    writers, read = sound_history()
    verdict = check(writers, read)
    assert verdict.problems == []
    assert verdict.sent == 200
    assert verdict.read == sum(map(len, read.values()))
    assert verdict.acked + verdict.unacked_present == verdict.read


@each_case(
    ("plant", "kind"),
    [
        (lose_in_the_middle, "lost"),
        (lose_the_tail, "lost"),
        (lose_of_the_plain_writer, "lost"),
        (repeat, "duplicate"),
        (repeat_of_an_unacknowledged, "duplicate"),
        (swap, "reordered"),
        (gap, "gap"),
        (damage, "damaged"),
        (vanish, "damaged"),
        (invent, "phantom"),
        (invent_a_writer, "phantom"),
        (misplace, "misplaced"),
    ],
)
@each_case("seed", range(5))
def test_a_planted_fault_is_caught(
    plant: Callable[[list[WriterHistory], Read], None], kind: str, seed: int
) -> None:
    writers, read = sound_history(seed)
    plant(writers, read)
    verdict = check(writers, read)
    assert verdict.kinds[kind] > 0
    assert any(problem.startswith(kind) for problem in verdict.problems)


def test_repeats_of_a_writer_without_idempotence_are_counted_not_judged() -> None:
    writers, read = sound_history()
    _, partition, offset = first_acked(writers[1])
    read[partition].append((len(read[partition]), read[partition][offset][1]))
    verdict = check(writers, read)
    assert verdict.problems == []
    assert verdict.repeats == 1


def test_problem_texts_are_bounded_and_counts_are_not() -> None:
    verdict = Verdict()
    for number in range(1000):
        verdict.add("lost", str(number))
    assert len(verdict.problems) < 100
    assert verdict.kinds["lost"] == 1000


def test_the_java_tools_values_are_recognised() -> None:
    assert parse_value(b"7.123") == ("java-7", 123)


@given(st.binary(max_size=40), st.integers(0, 2**40))
def test_a_value_gives_back_its_identity(padding: bytes, sequence: int) -> None:
    assert parse_value(make_value("writer-1", sequence, padding)) == ("writer-1", sequence)


@given(st.binary(max_size=20), st.data())
def test_any_changed_byte_is_noticed(padding: bytes, data: st.DataObject) -> None:
    value = bytearray(make_value("w", 5, padding))
    place = data.draw(st.integers(0, len(value) - 1))
    value[place] ^= data.draw(st.integers(1, 255))
    with pytest.raises(DamagedRecord):
        parse_value(bytes(value))
