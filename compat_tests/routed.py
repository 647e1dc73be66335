"""The wire by hand to a cluster: each request goes where a client would send it.

    with RoutedConnection(["127.0.0.1:9092", "127.0.0.1:9093", "127.0.0.1:9094"], home=1) as raw:
        raw.produce("t", batch([b"a"]))

A case written for one broker stays as it is: what concerns partitions goes to their leaders (in parts where
there are several; the answer is put together in the order of the question), what concerns a group or a
transactional id to its coordinator, all else to the home node. Leaders and coordinators are asked for anew
each time: the home node must know them. Invariant: answers come back in the order of the requests. Does not:
retry, or split a fetch session; topics whose partitions one session fetches must share a leader.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from compat_tests.raw import Answer, RawConnection

_FETCH = "fetch"


@dataclass(frozen=True, slots=True)
class _Layout:
    """Where an API's messages name topics and partitions; `index` is "" where these are plain numbers."""

    topics: str
    name: str
    partitions: str
    index: str
    answer_topics: str
    answer_partitions: str
    answer_index: str


_PARTITION_APIS: Mapping[str, _Layout] = {
    "produce": _Layout(
        "topic_data", "name", "partition_data", "index", "responses", "partition_responses", "index"
    ),
    _FETCH: _Layout(
        "topics", "topic", "partitions", "partition", "responses", "partitions", "partition_index"
    ),
    "list_offsets": _Layout(
        "topics", "name", "partitions", "partition_index", "topics", "partitions", "partition_index"
    ),
    "offset_for_leader_epoch": _Layout(
        "topics", "topic", "partitions", "partition", "topics", "partitions", "partition"
    ),
    "delete_records": _Layout(
        "topics", "name", "partitions", "partition_index", "topics", "partitions", "partition_index"
    ),
    "describe_producers": _Layout(
        "topics", "name", "partition_indexes", "", "topics", "partitions", "partition_index"
    ),
}
_GROUP_APIS = frozenset(
    {
        "offset_commit",
        "txn_offset_commit",
        "offset_delete",
        "join_group",
        "sync_group",
        "heartbeat",
        "leave_group",
    }
)
_TRANSACTION_APIS = frozenset({"init_producer_id", "add_offsets_to_txn", "end_txn"})
_CONFIG_APIS = frozenset({"describe_configs", "incremental_alter_configs", "alter_configs"})
_GROUP, _TRANSACTION = 0, 1
"""Types of coordinators."""
_OF_A_BROKER = (4, 8)
"""Types of resources that only the broker itself is asked about: it and its loggers."""
_EVERYWHERE: Mapping[str, str] = {"list_groups": "groups"}
"""What each node knows a part of, and the answer's list."""
_GROUP_LISTS: Mapping[str, tuple[str, str]] = {
    "describe_groups": ("groups", "groups"),
    "delete_groups": ("groups_names", "results"),
    "offset_fetch": ("groups", "groups"),
}
"""Requests about several groups: where they name them, and the answer's list."""


class RoutedConnection(RawConnection):
    """See the module. Args: home: the place in `bootstrap` of the node that all else is sent to."""

    def __init__(self, bootstrap: Sequence[str], home: int = 0, timeout_s: float = 15.0) -> None:
        self._timeout_s = timeout_s
        self._home = _address(bootstrap[home % len(bootstrap)])
        super().__init__(*self._home, timeout_s)
        self._others: dict[tuple[str, int], RawConnection] = {}
        self._asker: RawConnection | None = None
        self._parts: list[tuple[str, list[tuple[RawConnection | None, Answer]], Answer]] = []
        self._sessions: dict[int, tuple[str, int]] = {}
        self._last: RawConnection | None = None

    def send(self, api: str, api_version: int, *, answered: bool = True, **fields: Any) -> None:
        parts = []
        for address, part in self._split(api, api_version, fields).items():
            node = self._node_at(address)
            if node is None:
                super().send(api, api_version, answered=answered, **part)
            else:
                node.send(api, api_version, answered=answered, **part)
            parts.append((node, part))
            self._last = node
        if answered:
            self._parts.append((api, parts, fields))

    def receive(self) -> Answer:
        api, parts, fields = self._parts.pop(0)
        answers = [super(RoutedConnection, self).receive() if n is None else n.receive() for n, _ in parts]
        if api == _FETCH and (session := answers[0].get("session_id")):
            node = parts[0][0]
            self._sessions[session] = self._home if node is None else node.socket.getpeername()
        return answers[0] if len(answers) == 1 else joined(api, answers, fields)

    def is_closed_by_peer(self, wait_s: float = 5.0) -> bool:
        """As `RawConnection`, of the node that the last request went to."""
        last = self._last
        return super().is_closed_by_peer(wait_s) if last is None else last.is_closed_by_peer(wait_s)

    def close(self) -> None:
        for each in (self._asker, *self._others.values()):
            if each is not None:
                each.close()
        super().close()

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        configs: Mapping[str, str] | None = None,
        *,
        wait_s: float = 10.0,
    ) -> uuid.UUID:
        """As `RawConnection`; and until every node knows it, since coordinators ask their own node."""
        topic_id = super().create_topic(name, partitions, configs, wait_s=wait_s)
        until = time.monotonic() + wait_s
        asked = {"topics": [{"name": name}], "allow_auto_topic_creation": False}
        for address in self._addresses().values():
            node = self._node_at(address) or self._asker
            assert node is not None
            while node.call("metadata", 12, **asked)["topics"][0]["error_code"]:
                assert time.monotonic() < until, f"{address} does not know {name} after {wait_s} s"
                time.sleep(0.01)
        return topic_id

    # -- where to -------------------------------------------------------------------------------------------

    def _ask(self, api: str, api_version: int, **fields: Any) -> Answer:
        """What the router itself wants to know: the home connection may have answers under way."""
        if self._asker is None:
            self._asker = RawConnection(*self._home, self._timeout_s)
        return self._asker.call(api, api_version, **fields)

    def _addresses(self) -> dict[str, tuple[str, int]]:
        """By node id, which is text in the names of resources."""
        brokers = self._ask("metadata", 12, topics=[])["brokers"]
        return {str(each["node_id"]): (each["host"], each["port"]) for each in brokers}

    def _node_at(self, address: tuple[str, int]) -> RawConnection | None:
        """None for the home node."""
        if address == self._home:
            return None
        if address not in self._others:
            self._others[address] = RawConnection(*address, self._timeout_s)
        return self._others[address]

    def _split(self, api: str, api_version: int, fields: Answer) -> dict[tuple[str, int], Answer]:
        if api in _PARTITION_APIS:
            return self._by_leader(api, fields)
        if api in _GROUP_LISTS and fields.get(_GROUP_LISTS[api][0]):
            return self._by_coordinator(api, fields)
        if api in _GROUP_APIS or api == "offset_fetch":
            return {self._coordinator(fields.get("group_id", "")): fields}
        if api in _TRANSACTION_APIS and fields.get("transactional_id"):
            return {self._coordinator(fields["transactional_id"], _TRANSACTION): fields}
        if api == "add_partitions_to_txn" and (name := fields.get("v3_and_below_transactional_id")):
            return {self._coordinator(name, _TRANSACTION): fields}
        if api in _EVERYWHERE:
            return dict.fromkeys(self._addresses().values(), fields)
        if api in _CONFIG_APIS:
            brokers = [each for each in fields["resources"] if each["resource_type"] in _OF_A_BROKER]
            if brokers and len(fields["resources"]) == 1:
                return {self._addresses().get(brokers[0]["resource_name"], self._home): fields}
        return {self._home: fields}

    def _by_leader(self, api: str, fields: Answer) -> dict[tuple[str, int], Answer]:
        layout = _PARTITION_APIS[api]
        topics = fields.get(layout.topics) or []
        session = self._sessions.get(fields.get("session_id", 0))
        if session is not None:
            return {session: fields}
        leaders = self._leaders(topics, layout)
        found: dict[tuple[str, int], Answer] = {}
        for topic in topics:
            for each in topic[layout.partitions]:
                index = each[layout.index] if layout.index else each
                name = topic.get(layout.name), topic.get("topic_id")
                to = leaders.get((*name, index), leaders.get((*name, 0), self._home))
                part = found.setdefault(to, {**fields, layout.topics: []})
                own = part[layout.topics]
                if not own or own[-1][_OF] is not topic:
                    own.append({**topic, layout.partitions: [], _OF: topic})
                own[-1][layout.partitions].append(each)
        if len(found) < 2:
            return {next(iter(found), self._home): fields}
        if api == _FETCH and fields.get("session_epoch", -1) != -1:
            raise AssertionError("a fetch session over partitions of several leaders")
        for part in found.values():
            for topic in part[layout.topics]:
                del topic[_OF]
        return found

    def _leaders(self, topics: Sequence[Answer], layout: _Layout) -> dict[tuple[Any, Any, int], Any]:
        """(name, id, partition), as the question names it -> the leader's address."""
        found = {}
        for name, topic_id in {(topic.get(layout.name), topic.get("topic_id")) for topic in topics}:
            asked = {"name": None, "topic_id": topic_id} if topic_id and not name else {"name": name}
            version = 12 if name is None or len(name) < 250 else 1
            if version == 1 or (name is None and not topic_id):
                continue  # nothing that any node could lead
            seen = self._ask("metadata", 12, topics=[asked], allow_auto_topic_creation=False)
            addresses = {each["node_id"]: (each["host"], each["port"]) for each in seen["brokers"]}
            for topic in seen["topics"]:
                for part in topic["partitions"]:
                    if part["leader_id"] in addresses:
                        key = (name, topic_id, part["partition_index"])
                        found[key] = addresses[part["leader_id"]]
        return found

    def _by_coordinator(self, api: str, fields: Answer) -> dict[tuple[str, int], Answer]:
        name = _GROUP_LISTS[api][0]
        found: dict[tuple[str, int], Answer] = {}
        for group in fields[name]:
            to = self._coordinator(group["group_id"] if isinstance(group, Mapping) else group)
            found.setdefault(to, {**fields, name: []})[name].append(group)
        return found

    def _coordinator(self, key: str, kind: int = _GROUP) -> tuple[str, int]:
        (seen,) = self._ask("find_coordinator", 4, coordinator_keys=[key], key_type=kind)["coordinators"]
        return (seen["host"], seen["port"]) if seen["error_code"] == 0 else self._home


_OF = "the question's"


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return host, int(port)


def joined(api: str, answers: Sequence[Answer], fields: Answer) -> Answer:
    """The parts of an answer as one, in the order of the question."""
    whole = dict(answers[0])
    if api in _EVERYWHERE:
        whole[_EVERYWHERE[api]] = [each for answer in answers for each in answer[_EVERYWHERE[api]]]
        return whole
    if api in _GROUP_LISTS:
        asked, told = _GROUP_LISTS[api]
        order = [each["group_id"] if isinstance(each, Mapping) else each for each in fields[asked]]
        parts = [each for answer in answers for each in answer[told]]
        whole[told] = sorted(parts, key=lambda each: order.index(each["group_id"]))
        return whole
    layout = _PARTITION_APIS[api]
    topics: dict[tuple[Any, Any], Answer] = {}
    for answer in answers:
        for topic in answer[layout.answer_topics]:
            key = topic.get(layout.name), topic.get("topic_id")
            own = topics.setdefault(key, {**topic, layout.answer_partitions: []})
            own[layout.answer_partitions] += topic[layout.answer_partitions]
    for key, topic in topics.items():
        order = [
            each[layout.index] if layout.index else each
            for asked in fields[layout.topics]
            if key[0] is None or asked.get(layout.name) == key[0]
            for each in asked[layout.partitions]
        ]
        topic[layout.answer_partitions] = _ordered(
            topic[layout.answer_partitions], order, layout.answer_index
        )
    names = [each.get(layout.name) or each.get("topic_id") for each in fields[layout.topics]]
    whole[layout.answer_topics] = sorted(topics.values(), key=lambda each: _place(names, each, layout))
    return whole


def _ordered(parts: list[Answer], order: Sequence[int], index: str) -> list[Answer]:
    """In that order, which may name one twice."""
    left = list(parts)
    found = []
    for number in order:
        part = next((each for each in left if each[index] == number), None)
        if part is not None:
            left.remove(part)
            found.append(part)
    return found + left


def _place(names: Sequence[Any], topic: Answer, layout: _Layout) -> int:
    known = topic.get(layout.name), topic.get("topic_id")
    return next((place for place, each in enumerate(names) if each in known), len(names))
