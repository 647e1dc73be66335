"""What was said of operations is held against the log."""

from __future__ import annotations

from tests.campaigns.conditional_history import Conditions, Operation, refusal, settle


def append(
    number: int, partition: int, records: int = 1, stored: int | None = None, refused: bool = False
) -> Operation:
    operation = Operation(number, 0, partition, [Conditions() for _ in range(records)])
    operation.stored = stored
    operation.refused = {} if refused else None
    return operation


def read(number: int, partition: int, first: int, *values: bytes) -> Operation:
    operation = Operation(number, 0, partition)
    operation.first, operation.values, operation.seen = first, list(values), first + len(values)
    return operation


LOG = {0: [b"0/0", b"0/1", b"2/0"], 1: [b"1/0"]}


def test_a_log_that_has_what_was_acknowledged() -> None:
    operations = [
        append(0, 0, 2, stored=0),
        append(1, 1, stored=0),
        append(2, 0, stored=2),
        append(3, 0, refused=True),
        read(4, 0, 1, b"0/1", b"2/0"),
    ]
    assert settle(operations, LOG) == (operations, [])


def test_the_log_shows_unacknowledged_records() -> None:
    there, nowhere, unread = append(2, 0), append(3, 1), Operation(4, 0, 0)
    operations = [append(0, 0, 2, stored=0), append(1, 1, stored=0), there, nowhere, unread]
    known, problems = settle(operations, LOG)
    assert known == [*operations[:2], there] and problems == []
    assert there.stored == 2


def test_what_was_lost_doubled_moved_or_refused_and_stored() -> None:
    whole = [append(0, 0, 2, stored=0), append(1, 1, stored=0), append(2, 0, stored=2)]
    assert settle([*whole, append(3, 0, stored=3)], LOG)[1] == [
        "operation 3 was stored at 3, the log has it at [[]]"
    ]
    assert settle(whole, {0: [*LOG[0], b"0/0"], 1: LOG[1]})[1] == [
        "operation 0 was stored at 0, the log has it at [[(0, 0), (0, 3)], [(0, 1)]]"
    ]
    assert settle([*whole[:2], append(2, 0, stored=1)], LOG)[1] == [
        "operation 2 was stored at 1, the log has it at [[(0, 2)]]"
    ]
    assert settle([*whole[:2], append(2, 0, refused=True)], LOG)[1] == [
        "operation 2 was refused, the log has it at [[(0, 2)]]"
    ]
    assert settle([*whole[:2], append(2, 1, stored=2)], LOG)[1] == [
        "operation 2 was stored at 2, the log has it at [[(0, 2)]]"
    ]
    assert settle(whole[:2], LOG)[1] == ["nobody wrote b'2/0', which is at [(0, 2)]"]


def test_half_a_batch_and_one_out_of_order() -> None:
    torn = append(0, 0, 2)
    assert settle([torn], {0: [b"0/1"]})[1] == [
        "operation 0 was stored at -1, the log has it at [[], [(0, 0)]]"
    ]
    turned = append(0, 0, 2)
    assert settle([turned], {0: [b"0/1", b"0/0"]})[1] == [
        "operation 0 was stored at 1, the log has it at [[(0, 1)], [(0, 0)]]"
    ]


def test_what_was_read_stays() -> None:
    whole = [append(0, 0, 2, stored=0), append(1, 1, stored=0), append(2, 0, stored=2)]
    assert settle([*whole, read(3, 0, 1, b"0/1", b"9/9")], LOG)[1] == [
        "operation 3 read from 1 on what is not there any more"
    ]
    assert settle([*whole, read(3, 1, 0, b"1/0", b"5/0")], LOG)[1] == [
        "operation 3 read from 0 on what is not there any more"
    ]


def test_the_brokers_line() -> None:
    text = (
        "t-x, partition 1: LOCKSTEP_REFUSED reason=LOCK record=2 topic-partition=t-x-1 lock=seat%2F12A "
        "mode=W hwm=-1 conflict_offset=7 exact (POLICY_VIOLATION)"
    )
    assert refusal(44, text) == {
        "error": 44,
        "reason": "LOCK",
        "record": 2,
        "partition": 1,
        "lock": "seat/12A",
        "mode": "W",
        "hwm": -1,
        "conflict_offset": 7,
        "exact": True,
    }
    estimate = refusal(44, text.replace("exact", "estimate"))
    assert estimate is not None and not estimate["exact"]
    assert refusal(87, "a batch of 3 bytes (INVALID_RECORD)") is None
