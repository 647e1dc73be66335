"""Drawn administration requests for `compat_tests.differential`: mostly odd ones, empty, doubled, negative.

Owns: what is drawn. Not drawn, because the two are known to differ: what concerns all topics of a broker; an
empty name in DescribeTopicPartitions (Kafka fails with -1); more partitions than either allows; ids of
transactions (Kafka is no coordinator before something has made __transaction_state); growth of an internal
topic.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from compat_tests.raw import Answer

Request = tuple[str, int, Answer]

LEFT_OUT = frozenset({"log_dir", "total_bytes", "usable_bytes", "partition_size", "active_producers"})
"""Each broker's own: places, room, and what deleted records still take."""


def admin_request(
    draw: Random, names: Sequence[str], short_lived: Sequence[str], near_end: Callable[[str, int], int]
) -> Request:
    """One request. `names` hold records, `short_lived` come and go; `near_end`: an offset to ask for."""
    every = [*names, *names, names[0] + "-absent", "", "a b"]
    kinds: list[Callable[[], Request]] = [
        lambda: _create_partitions(draw, every, short_lived),
        lambda: _delete_records(draw, every, near_end),
        lambda: _log_dirs(draw, every),
        lambda: _producers(draw, every),
        lambda: _transactions(draw),
        lambda: _topic_pages(draw, every),
        lambda: _elections(draw, every),
        lambda: _reassignments(draw, every),
        lambda: _quorum(draw, every),
        lambda: _access_rules(draw),
    ]
    return draw.choice(kinds)()


def _some(draw: Random, values: Sequence[str], most: int = 3) -> list[str]:
    return [draw.choice(values) for _ in range(draw.randint(0, most))]


def _partitions(draw: Random) -> list[int]:
    return [draw.choice([0, 0, 1, 1, 2, 7, -1]) for _ in range(draw.randint(0, 3))]


def _replicas(draw: Random) -> list[int]:
    return draw.choice([[1], [1], [1], [], [2], [1, 1], [1, 2], [-1]])


def _create_partitions(draw: Random, every: Sequence[str], short_lived: Sequence[str]) -> Request:
    only_check = draw.random() < 0.5
    names = _some(draw, every if only_check else short_lived, 2)
    topics = []
    for name in names:
        assignments = None
        if draw.random() < 0.4:
            assignments = [{"broker_ids": _replicas(draw)} for _ in range(draw.randint(0, 2))]
        count = draw.choice([-1, 0, 1, 2, 3, 4, 5])
        topics.append({"name": name, "count": count, "assignments": assignments})
    fields = {"topics": topics, "timeout": 5000, "validate_only": only_check}
    return "create_partitions", draw.randint(0, 3), fields


def _delete_records(draw: Random, every: Sequence[str], near_end: Callable[[str, int], int]) -> Request:
    topics = []
    for name in _some(draw, every, 2):
        parts = []
        for index in _partitions(draw):
            offset = draw.choice([0, 1, -1, -2, near_end(name, index) // 2, near_end(name, index) + 90])
            parts.append({"partition_index": index, "offset": offset})
        topics.append({"name": name, "partitions": parts})
    return "delete_records", draw.randint(0, 2), {"topics": topics, "timeout": draw.choice([5000, 0, -1])}


def _log_dirs(draw: Random, every: Sequence[str]) -> Request:
    topics = [{"topic": name, "partitions": _partitions(draw)} for name in _some(draw, every)]
    return "describe_log_dirs", draw.randint(1, 5), {"topics": topics}


def _producers(draw: Random, every: Sequence[str]) -> Request:
    topics = [{"name": name, "partition_indexes": _partitions(draw)} for name in _some(draw, every)]
    return "describe_producers", 0, {"topics": topics}


def _transactions(draw: Random) -> Request:
    states = _some(draw, ["Ongoing", "ongoing", "", "Dead", "Bogus", "PrepareEpochFence"])
    nobodys = draw.choice([[-1], [1 << 40], [-1, 1 << 40]])  # other cases left transactions on each broker
    fields: Answer = {"state_filters": states, "producer_id_filters": nobodys}
    version = draw.randint(0, 2)
    if version >= 1:
        fields["duration_filter"] = draw.choice([-1, 0, 1000])
    if version >= 2:
        fields["transactional_id_pattern"] = draw.choice([None, "", ".*", "[", "(", "a{2"])
    return "list_transactions", version, fields


def _topic_pages(draw: Random, every: Sequence[str]) -> Request:
    names = [name for name in _some(draw, every) if name] or [every[0]]
    cursor = None
    if draw.random() < 0.5:
        cursor = {
            "topic_name": draw.choice([*names, every[0]]),
            "partition_index": draw.choice([0, 1, 2, 9, -1]),
        }
    limit = draw.choice([2000, 1, 2, 3, 0, -1])
    topics = [{"name": name} for name in names]
    fields = {"topics": topics, "response_partition_limit": limit, "cursor": cursor}
    return "describe_topic_partitions", 0, fields


def _elections(draw: Random, every: Sequence[str]) -> Request:
    topics = [{"topic": name, "partitions": _partitions(draw)} for name in _some(draw, every)]
    version = draw.randint(0, 2)
    fields: Answer = {"topic_partitions": topics, "timeout": 5000}
    if version >= 1:
        fields["election_type"] = draw.choice([0, 0, 1, 2, -1])
    return "elect_leaders", version, fields


def _reassignments(draw: Random, every: Sequence[str]) -> Request:
    if draw.random() < 0.3:
        asked = [{"name": name, "partition_indexes": _partitions(draw)} for name in _some(draw, every)]
        return "list_partition_reassignments", 0, {"topics": asked, "timeout": 5000}
    topics = []
    for name in _some(draw, every, 2):
        parts = [
            {"partition_index": index, "replicas": draw.choice([None, _replicas(draw)])}
            for index in _partitions(draw)
        ]
        topics.append({"name": name, "partitions": parts})
    return "alter_partition_reassignments", draw.randint(0, 1), {"topics": topics, "timeout": 5000}


def _quorum(draw: Random, every: Sequence[str]) -> Request:
    topics = [
        {"topic_name": name, "partitions": [{"partition_index": index} for index in _partitions(draw)]}
        for name in _some(draw, every)
    ]
    if draw.random() < 0.3:
        topics.append({"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 1}]})
    return "describe_quorum", draw.randint(0, 2), {"topics": topics}


def _access_rules(draw: Random) -> Request:
    kind = draw.choice(["describe_acls", "create_acls", "delete_acls"])

    def code(*usual: int) -> int:
        return draw.choice([*usual, *usual, *usual, 0, 99, -1])

    rule: Answer
    if kind == "create_acls":
        rule = {
            "resource_type": code(2, 3),
            "resource_pattern_type": code(3, 4),
            "permission_type": code(2, 3),
        }
        rule |= {"resource_name": draw.choice(["t", "", "*"]), "principal": draw.choice(["User:a", "", "x"])}
        rule |= {"host": draw.choice(["*", ""]), "operation": code(2, 3)}
    else:
        rule = {"resource_type_filter": code(1, 2), "pattern_type_filter": code(1, 3), "host_filter": None}
        rule |= {"resource_name_filter": draw.choice([None, "", "t"]), "permission_type": code(1, 3)}
        rule |= {"principal_filter": draw.choice([None, "", "User:a"]), "operation": code(1, 3)}
    if kind != "describe_acls":
        many = [rule] * draw.randint(0, 2)
        rule = {"creations": many} if kind == "create_acls" else {"filters": many}
    return kind, draw.randint(1, 3), rule
