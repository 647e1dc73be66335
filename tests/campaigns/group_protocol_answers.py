"""Answers about one consumer group as text in which two brokers must agree.

Owns: the logical names of topics and members, and one text per answer: error codes, epochs, intervals,
assignments with their partitions sorted, states. Leaves out messages for people and throttle times. A field
that an error leaves at its default is not written.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

Fields = dict[str, Any]
Assigned = dict[str, tuple[int, ...]]
"""Partitions by the logical name of their topic."""


class Names:
    """Logical names of what a broker names itself. Two brokers give equal ones to equal things."""

    def __init__(self, topics: Mapping[str, uuid.UUID], tag: str) -> None:
        self.tag = tag
        self._ids = dict(topics)
        self._topics = {topic_id: name for name, topic_id in topics.items()}
        self._made: dict[str, int] = {}
        self._members: dict[str, str] = {}

    # -- topics: those of a sequence itself have a number behind #, as one may be created twice

    def real(self, topic: str) -> str:
        """The name that the broker knows: of "z0", another one in each run of a sequence."""
        name = topic.partition("#")[0]
        return f"z-{self.tag}-{name[1:]}" if name.startswith("z") else name

    def created(self, topic: str, topic_id: uuid.UUID) -> None:
        number = self._made[topic] = self._made.get(topic, 0) + 1
        self._ids[f"{topic}#{number}"] = topic_id
        self._topics[topic_id] = f"{topic}#{number}"

    def topic_id(self, topic: str) -> uuid.UUID:
        """Of the newest of that name, or of one with a number; of no topic where there is none."""
        topic = f"{topic}#{self._made[topic]}" if topic in self._made else topic
        return self._ids.get(topic, uuid.UUID(int=7))

    def topic(self, topic_id: uuid.UUID | None) -> str:
        return self._topics.get(topic_id or uuid.UUID(int=0), "?")

    def logical(self, real: str) -> str:
        """Of a topic's name in an answer."""
        return "z" + real.rpartition("-")[2] if real.startswith(f"z-{self.tag}-") else real

    # -- members

    def member(self, member_id: str | None) -> str:
        return self._members.get(member_id, member_id) if member_id else str(member_id)

    def called(self, member_id: str, logical: str) -> None:
        """A broker made this id; it goes by the logical name from now on."""
        if member_id not in self._members:
            count = sum(each.startswith(logical) for each in self._members.values())
            self._members[member_id] = f"{logical}#{count}"


def assigned(parts: Iterable[Fields], names: Names) -> Assigned:
    found = {names.topic(each["topic_id"]): tuple(sorted(each["partitions"])) for each in parts}
    return dict(sorted(found.items()))


def words_of(parts: Assigned) -> str:
    """`three:0,1;two:0`; "-" for none."""
    return ";".join(f"{topic}:{','.join(map(str, each))}" for topic, each in sorted(parts.items())) or "-"


def code(answer: Fields, *rest: object) -> str:
    """The error alone where the rest is as an error leaves it."""
    words = " ".join(map(str, rest))
    return f"{answer['error_code']} {words}".rstrip()


def heartbeat(answer: Fields, names: Names) -> str:
    rest = (answer["member_id"], answer["member_epoch"], answer["heartbeat_interval"], answer["assignment"])
    if answer["error_code"] and rest == (None, 0, 0, None):
        return code(answer)
    parts = answer["assignment"]
    told = "null" if parts is None else words_of(assigned(parts["topic_partitions"], names))
    epoch = f"epoch={answer['member_epoch']}"
    return code(answer, names.member(rest[0]), epoch, f"every={rest[2]}", told)


def brief_heartbeat(answer: Fields, names: Names) -> str:
    """Without the assignment, of which the order of a hash table decides."""
    return code(answer, f"epoch={answer['member_epoch']}", f"every={answer['heartbeat_interval']}")


def by_partition(answer: Fields, names: Names, key: str = "error_code") -> str:
    found = [
        f"{names.logical(topic['name']) if 'name' in topic else names.topic(topic['topic_id'])}"
        f"-{part['partition_index']}={part[key]}"
        for topic in answer["topics"]
        for part in topic["partitions"]
    ]
    return " ".join(sorted(found)) or "-"


def offset_fetch(answer: Fields, names: Names) -> str:
    if "groups" not in answer:
        return code(answer, by_partition(answer, names, "committed_offset"), by_partition(answer, names))
    (group,) = answer["groups"]
    errors = {part["error_code"] for topic in group["topics"] for part in topic["partitions"]}
    wrong = by_partition(group, names) if errors - {0} else ""
    return code(group, by_partition(group, names, "committed_offset"), wrong)


def offset_delete(answer: Fields, names: Names) -> str:
    return code(answer, by_partition(answer, names))


def described(answer: Fields, names: Names) -> str:
    """Of ConsumerGroupDescribe."""
    (group,) = answer["groups"]
    epochs = f"group={group['group_epoch']} assignment={group['assignment_epoch']}"
    lines = [code(group, group["group_state"], epochs, group["assignor_name"] or "-")]
    for each in sorted(group["members"], key=lambda each: names.member(each["member_id"])):
        subscribed = ",".join(sorted(map(names.logical, each["subscribed_topic_names"])))
        regex = (each["subscribed_topic_regex"] or "").replace(names.tag, "TAG")
        has, target = (
            words_of(assigned(each[key]["topic_partitions"], names))
            for key in ("assignment", "target_assignment")
        )
        what = f"{names.member(each['member_id'])} {each['instance_id']} {each['rack_id']}"
        who = f"{each['client_id']} {each['client_host']} type={each.get('member_type')}"
        lines.append(f"{what} epoch={each['member_epoch']} {who} [{subscribed}] /{regex}/ {has} > {target}")
    return " | ".join(lines)


def brief_described(answer: Fields, names: Names) -> str:
    (group,) = answer["groups"]
    epochs = f"group={group['group_epoch']} assignment={group['assignment_epoch']}"
    epochs_of = sorted(each["member_epoch"] for each in group["members"])
    return code(group, group["group_state"], epochs, group["assignor_name"], epochs_of)


def listed(answer: Fields, group: str) -> str:
    """The one group in the answer of ListGroups."""
    found = [each for each in answer["groups"] if each["group_id"] == group]
    if not found:
        return code(answer, "absent")
    (each,) = found
    rest = (each[key] for key in ("protocol_type", "group_state", "group_type") if key in each)
    return code(answer, *(word or "-" for word in rest))


def classic_described(answer: Fields, names: Names) -> str:
    (group,) = answer["groups"]
    lines = [code(group, group["group_state"], group["protocol_type"] or "-", group["protocol_data"] or "-")]
    for each in sorted(group["members"], key=lambda each: names.member(each["member_id"])):
        what = f"{names.member(each['member_id'])} {each['group_instance_id']} {each['client_id']}"
        subscribed, has = subscription(each["member_metadata"]), assignment(each["member_assignment"], names)
        lines.append(f"{what} {each['client_host']} {subscribed} > {has}")
    return " | ".join(lines)


def results(answer: Fields, names: Names) -> str:
    return " ".join(str(each["error_code"]) for each in answer[next(iter(answer.keys() & _RESULTS))])


_RESULTS: Final = {"results", "topics", "responses", "members"}


def joined(answer: Fields, names: Names) -> str:
    members = sorted(
        f"{each['group_instance_id']} {subscription(each['metadata'])}" for each in answer["members"]
    )
    if answer["error_code"]:
        return code(answer, f"generation={answer['generation_id']}")
    leader = names.member(answer["leader"]) or "-"
    rest = (answer.get("protocol_type"), answer["protocol_name"], f"leader={leader}")
    who = names.member(answer["member_id"])
    return code(answer, who, f"generation={answer['generation_id']}", *rest, members)


def synced(answer: Fields, names: Names) -> str:
    rest = (answer.get("protocol_type"), answer.get("protocol_name"))
    if answer["error_code"]:
        return code(answer)
    return code(answer, *rest, assignment(answer["assignment"], names))


# --- the consumer protocol inside of classic groups' bytes -----------------------------------------


class _Bytes:
    """Reads Kafka's plain encoding."""

    def __init__(self, data: bytes) -> None:
        self._data, self._place = data, 0

    def take(self, form: str) -> Any:
        (value,) = struct.unpack_from(f">{form}", self._data, self._place)
        self._place += struct.calcsize(f">{form}")
        return value

    def text(self) -> str:
        size = self.take("h")
        self._place += max(size, 0)
        return self._data[self._place - max(size, 0) : self._place].decode()

    def several(self, each: Callable[[], Any]) -> list[Any]:
        return [each() for _ in range(self.take("i"))]

    def data(self) -> bytes | None:
        size = self.take("i")
        self._place += max(size, 0)
        return None if size < 0 else self._data[self._place - size : self._place]


def _text(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()


def subscription_bytes(topics: Iterable[str]) -> bytes:
    """A subscription of version 1 that owns nothing."""
    names = list(topics)
    return struct.pack(">hi", 1, len(names)) + b"".join(map(_text, names)) + struct.pack(">ii", -1, 0)


def assignment_bytes(parts: Mapping[str, Iterable[int]], user_data: bytes | None = None) -> bytes:
    """An assignment of version 1. Args: parts: by the topic's real name."""
    body = b""
    for topic, partitions in parts.items():
        numbers = list(partitions)
        body += _text(topic) + struct.pack(f">i{len(numbers)}i", len(numbers), *numbers)
    size = -1 if user_data is None else len(user_data)
    return struct.pack(">hi", 1, len(parts)) + body + struct.pack(">i", size) + (user_data or b"")


def subscription(data: bytes) -> str:
    """Topics of a subscription."""
    if not data:
        return "-"
    read = _Bytes(data)
    read.take("h")
    return ",".join(sorted(read.several(read.text)))


def _assignment(data: bytes, names: Names) -> tuple[int, Assigned, bytes | None]:
    read = _Bytes(data)
    version = read.take("h")
    parts = read.several(lambda: (read.text(), tuple(sorted(read.several(lambda: read.take("i"))))))
    return version, {names.logical(topic): each for topic, each in parts}, read.data()


def assigned_in(data: bytes, names: Names) -> Assigned:
    """The partitions of an assignment, by the topic's name without a number."""
    return _assignment(data, names)[1] if data else {}


def assignment(data: bytes, names: Names) -> str:
    if not data:
        return "empty"
    version, parts, user_data = _assignment(data, names)
    return f"v{version} {words_of(parts)} {user_data!r}"
