"""What a consumer group's history must show, whatever was killed meanwhile.

Owns: the rules, over three accounts: the records of `__consumer_offsets` in log order, the members' diaries
(`group_member.py`), and what an observer saw by asking. Pure: no client, no clock, no file.

- back: a committed offset lower than one committed before it, in the log or in the observer's answers;
- forgotten: an acknowledged commit that a later answer, or the log, does not reach;
- twice: a partition in the assignments of two members of one generation;
- generation: a later record with a lower generation, or one generation with two different assignments;
- unassigned: partitions that a member was told to own and that no committed generation gives to it;
- skipped: offsets below the last commit that no member was ever handed.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lockstep.broker.groups.group_records import CommittedOffset, GroupMetadata

TopicPartition = tuple[str, int]
Event = Mapping[str, Any]
KEPT_PROBLEMS = 50


@dataclass
class GroupVerdict:
    """Counts and problems of one check. Sound when `kinds` is empty."""

    generations: int = 0
    largest: int = 0
    commits_in_log: int = 0
    commits_acknowledged: int = 0
    records_read: int = 0
    observations: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)

    def add(self, kind: str, text: str) -> None:
        """Counts a problem; keeps the text while there are few."""
        self.kinds[kind] += 1
        if len(self.problems) < KEPT_PROBLEMS:
            self.problems.append(f"{kind}: {text}")


@dataclass(frozen=True)
class Observation:
    """One OffsetFetch: asked no earlier than `asked_ns`, what it answered."""

    asked_ns: int
    offsets: Mapping[TopicPartition, int]


@dataclass(frozen=True)
class GroupLog:
    """One group's records of `__consumer_offsets`, each kind in log order."""

    offsets: Sequence[tuple[TopicPartition, CommittedOffset | None]]
    generations: Sequence[GroupMetadata | None]


def owned_in(assignment: bytes) -> list[TopicPartition]:
    """The partitions in a consumer's assignment (version, topics with their partitions)."""
    if not assignment:
        return []
    (topics,) = struct.unpack_from(">i", assignment, 2)
    position = 6
    found: list[TopicPartition] = []
    for _ in range(topics):
        (length,) = struct.unpack_from(">h", assignment, position)
        topic = assignment[position + 2 : position + 2 + length].decode()
        position += 2 + length
        (count,) = struct.unpack_from(">i", assignment, position)
        found += [(topic, index) for index in struct.unpack_from(f">{count}i", assignment, position + 4)]
        position += 4 + 4 * count
    return found


def check(
    log: GroupLog, events: Iterable[Event], observations: Sequence[Observation], cooperative: bool
) -> GroupVerdict:
    """Judges one group. With cooperative rebalancing a member keeps partitions from generation to generation,
    so only what a generation gives out is held against the log."""
    verdict = GroupVerdict(observations=len(observations))
    happened = sorted(events, key=lambda event: int(event["at_ns"]))
    committed = _walk_offsets(log, verdict)
    given = _walk_generations(log, verdict)
    if not cooperative:
        _check_told(happened, given, verdict)
    _check_acknowledged(happened, observations, committed, verdict)
    _check_skipped(happened, committed, verdict)
    return verdict


def _walk_offsets(log: GroupLog, verdict: GroupVerdict) -> dict[TopicPartition, int]:
    committed: dict[TopicPartition, int] = {}
    for place, found in log.offsets:
        if found is None:
            verdict.add("back", f"{place}: deleted by a tombstone")
            continue
        verdict.commits_in_log += 1
        if found.offset < committed.get(place, 0):
            verdict.add("back", f"{place}: {found.offset} committed after {committed[place]}")
        committed[place] = max(committed.get(place, 0), found.offset)
    return committed


def _walk_generations(log: GroupLog, verdict: GroupVerdict) -> set[tuple[str, frozenset[TopicPartition]]]:
    """Every (member id, partitions) that some committed generation gave out."""
    given: set[tuple[str, frozenset[TopicPartition]]] = set()
    newest = -1
    assignments: dict[int, dict[str, frozenset[TopicPartition]]] = {}
    for metadata in log.generations:
        if metadata is None:
            continue
        if metadata.generation < newest:
            verdict.add("generation", f"{metadata.generation} after {newest}")
        newest = max(newest, metadata.generation)
        found = {member.member_id: frozenset(owned_in(member.assignment)) for member in metadata.members}
        owners: dict[TopicPartition, str] = {}
        for member_id, places in found.items():
            given.add((member_id, places))
            for place in places:
                if place in owners:
                    verdict.add(
                        "twice", f"generation {metadata.generation}: {place}: {owners[place]}, {member_id}"
                    )
                owners[place] = member_id
        before = assignments.setdefault(metadata.generation, found)
        if metadata.members and before != found:
            verdict.add("generation", f"{metadata.generation} was given out in two ways")
        verdict.largest = max(verdict.largest, len(found))
    verdict.generations = len(assignments)
    return given


def _check_told(
    events: Sequence[Event], given: set[tuple[str, frozenset[TopicPartition]]], verdict: GroupVerdict
) -> None:
    for event in events:
        if event["event"] != "assigned":
            continue
        places = frozenset((topic, index) for topic, index in event["partitions"])
        if places and (event["member_id"], places) not in given:
            verdict.add("unassigned", f"{event['member']} ({event['member_id']}) was told {sorted(places)}")


def _check_acknowledged(
    events: Sequence[Event],
    observations: Sequence[Observation],
    committed: Mapping[TopicPartition, int],
    verdict: GroupVerdict,
) -> None:
    """Sweeps acknowledged commits and observations in time: an answer may lag nothing acknowledged before."""
    acknowledged: dict[TopicPartition, int] = {}
    seen: dict[TopicPartition, int] = {}
    commits = [event for event in events if event["event"] == "committed"]
    position = 0
    for observation in sorted(observations, key=lambda each: each.asked_ns):
        while position < len(commits) and commits[position]["at_ns"] <= observation.asked_ns:
            _raise_marks(acknowledged, commits[position])
            position += 1
        for place, least in acknowledged.items():
            offset = observation.offsets.get(place, -1)
            if offset < least:
                verdict.add("forgotten", f"{place}: {least} was acknowledged, then {offset} answered")
        for place, offset in observation.offsets.items():
            if offset < seen.get(place, -1):
                verdict.add("back", f"{place}: {seen[place]} answered, then {offset}")
            seen[place] = offset
    for event in commits[position:]:
        _raise_marks(acknowledged, event)
    for place, least in acknowledged.items():
        if committed.get(place, -1) < least:
            verdict.add("forgotten", f"{place}: {least} was acknowledged; the log has {committed.get(place)}")
    verdict.commits_acknowledged = sum(len(event["offsets"]) for event in commits)


def _raise_marks(marks: dict[TopicPartition, int], event: Event) -> None:
    for topic, index, offset in event["offsets"]:
        marks[topic, index] = max(marks.get((topic, index), -1), offset)


def _check_skipped(
    events: Sequence[Event], committed: Mapping[TopicPartition, int], verdict: GroupVerdict
) -> None:
    ranges: dict[TopicPartition, list[tuple[int, int]]] = {}
    for event in events:
        if event["event"] == "read":
            for topic, index, first, last in event["ranges"]:
                ranges.setdefault((topic, index), []).append((first, last))
                verdict.records_read += last - first + 1
    for place, end in committed.items():
        covered = 0
        for first, last in sorted(ranges.get(place, [])):
            if first > covered:
                break
            covered = max(covered, last + 1)
        if covered < end:
            verdict.add("skipped", f"{place}: {end} committed, nobody was handed {covered}")
