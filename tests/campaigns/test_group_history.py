"""The checker of group histories finds each broken rule, and nothing in a sound history."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

from lockstep.broker.groups.group_records import CommittedOffset, GroupMetadata, RecordedMember
from tests.campaigns.group_history import GroupLog, GroupVerdict, Observation, check, owned_in
from tests.support.cases import each_case


def _assignment(topic: str, *partitions: int) -> bytes:
    head = struct.pack(">hih", 0, 1, len(topic)) + topic.encode()
    return head + struct.pack(f">i{len(partitions)}ii", len(partitions), *partitions, -1)


def _generation(number: int, **owned: Sequence[int]) -> GroupMetadata:
    members = tuple(
        RecordedMember(name, None, name, "/127.0.0.1", 1, 1, b"", _assignment("t", *partitions))
        for name, partitions in owned.items()
    )
    return GroupMetadata("consumer", number, "range", "a", 0, members)


def _event(at: int, event: str, **fields: Any) -> dict[str, Any]:
    return {"at_ns": at, "member": "m", "event": event, **fields}


def _sound() -> tuple[GroupLog, list[dict[str, Any]], list[Observation]]:
    log = GroupLog(
        [(("t", 0), CommittedOffset(5)), (("t", 1), CommittedOffset(3)), (("t", 0), CommittedOffset(9))],
        [_generation(1, a=[0, 1]), _generation(2, a=[0], b=[1])],
    )
    events = [
        _event(1, "assigned", member_id="a", partitions=[["t", 0], ["t", 1]]),
        _event(2, "read", ranges=[["t", 0, 0, 4], ["t", 1, 0, 2]]),
        _event(3, "committed", offsets=[["t", 0, 5], ["t", 1, 3]]),
        _event(5, "read", ranges=[["t", 0, 5, 8]]),
        _event(6, "committed", offsets=[["t", 0, 9]]),
    ]
    seen = [
        Observation(0, {}),
        Observation(4, {("t", 0): 5, ("t", 1): 3}),
        Observation(7, {("t", 0): 9, ("t", 1): 3}),
    ]
    return log, events, seen


def _verdict(log: GroupLog, events: list[dict[str, Any]], seen: list[Observation]) -> GroupVerdict:
    return check(log, events, seen, cooperative=False)


def test_an_assignment_is_read() -> None:
    assert owned_in(_assignment("topic", 3, 1)) == [("topic", 3), ("topic", 1)]
    assert owned_in(b"") == []


def test_a_sound_history_has_no_problem() -> None:
    verdict = _verdict(*_sound())
    assert verdict.problems == []
    assert (verdict.generations, verdict.largest, verdict.commits_in_log) == (2, 2, 3)
    assert (verdict.commits_acknowledged, verdict.records_read) == (3, 12)


def _log_goes_back(log: GroupLog, events: list[Any], seen: list[Any]) -> None:
    log.offsets.append((("t", 0), CommittedOffset(8)))  # type: ignore[attr-defined]


def _answer_goes_back(log: GroupLog, events: list[Any], seen: list[Any]) -> None:
    seen.append(Observation(8, {("t", 0): 9, ("t", 1): 2}))


def _answer_forgets(log: GroupLog, events: list[Any], seen: list[Any]) -> None:
    seen[1] = Observation(4, {("t", 0): 5})


def _log_forgets(log: GroupLog, events: list[Any], seen: list[Any]) -> None:
    events.append(_event(9, "committed", offsets=[["t", 0, 10]]))


def _owned_twice(log: GroupLog, events: list[Any], seen: list[Any]) -> None:
    log.generations.append(_generation(3, a=[0, 1], b=[1]))  # type: ignore[attr-defined]


def _two_assignments(log: GroupLog, events: list[Any], seen: list[Any]) -> None:
    log.generations.append(_generation(2, a=[1], b=[0]))  # type: ignore[attr-defined]


def _old_generation(log: GroupLog, events: list[Any], seen: list[Any]) -> None:
    log.generations.append(_generation(1, a=[0, 1]))  # type: ignore[attr-defined]


def _told_otherwise(log: GroupLog, events: list[Any], seen: list[Any]) -> None:
    events.append(_event(9, "assigned", member_id="b", partitions=[["t", 0]]))


def _nobody_read_it(log: GroupLog, events: list[Any], seen: list[Any]) -> None:
    del events[3]


@each_case(
    ("plant", "kind"),
    [
        (_log_goes_back, "back"),
        (_answer_goes_back, "back"),
        (_answer_forgets, "forgotten"),
        (_log_forgets, "forgotten"),
        (_owned_twice, "twice"),
        (_two_assignments, "generation"),
        (_old_generation, "generation"),
        (_told_otherwise, "unassigned"),
        (_nobody_read_it, "skipped"),
    ],
)
def test_each_broken_rule_is_found(plant: Any, kind: str) -> None:
    log, events, seen = _sound()
    plant(log, events, seen)
    assert kind in _verdict(log, events, seen).kinds
