"""Client quotas: set and described, by hand and by Kafka's tool, and what clients over them see on the wire.

Each case has client ids of its own, and takes back what it has set: cases share their brokers.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import pytest

from compat_tests.conftest import NewTopic
from compat_tests.java_driver import ToolResult
from compat_tests.probe import HOST
from compat_tests.raw import Answer, ConnectionClosed, RawConnection, batch
from compat_tests.targets import Target
from compat_tests.until import until

AREA = "Quotas"
NONE = 0
INVALID_REQUEST = 42
THROTTLING_QUOTA_EXCEEDED = 89
EXACT, DEFAULT, SPECIFIED = range(3)
Entity = Mapping[str, str | None]
Tool = Callable[..., ToolResult]
_CONFIGS = "org.apache.kafka.tools.ConfigCommand"
LARGE = batch([b"x" * 100_000])


class Quotas:
    """Sets quotas and takes them back."""

    def __init__(self, raw: RawConnection) -> None:
        self._raw = raw
        self._set: list[tuple[Entity, str]] = []

    def alter(
        self, entity: Entity, values: Mapping[str, float | None], *, validate_only: bool = False
    ) -> Answer:
        """The result for one entity; None removes a quota."""
        if not validate_only:
            self._set += [(entity, key) for key in values]
        ops = [{"key": key, "value": value or 0.0, "remove": value is None} for key, value in values.items()]
        return self.alter_all([_entry(entity, ops)], validate_only)[0]

    def alter_all(self, entries: list[Answer], validate_only: bool = False) -> list[Answer]:
        answer = self._raw.call("alter_client_quotas", 1, entries=entries, validate_only=validate_only)
        found: list[Answer] = answer["entries"]
        return found

    def described(self, *components: tuple[str, int, str | None], strict: bool = False) -> list[Any]:
        """The entities of a filter, in order of their text."""
        wanted = [{"entity_type": kind, "match_type": how, "match": name} for kind, how, name in components]
        answer = self._raw.call("describe_client_quotas", 1, components=wanted, strict=strict)
        assert answer["error_code"] == NONE, answer
        return sorted(
            (
                (
                    {part["entity_type"]: part["entity_name"] for part in each["entity"]},
                    {value["key"]: value["value"] for value in each["values"]},
                )
                for each in answer["entries"]
            ),
            key=str,
        )

    def set(self, entity: Entity, **values: float) -> None:
        """Set quotas, and wait until the broker has them."""
        result = self.alter(entity, values)
        assert result["error_code"] == NONE, result
        components = [(kind, DEFAULT if name is None else EXACT, name) for kind, name in entity.items()]
        until([(entity, values)], lambda: self.described(*components, strict=True))

    def clear(self) -> None:
        set_before, self._set = self._set, []
        for entity, key in set_before:
            self.alter(entity, {key: None})


def _entry(entity: Entity, ops: list[Answer]) -> Answer:
    return {
        "entity": [{"entity_type": kind, "entity_name": name} for kind, name in entity.items()],
        "ops": ops,
    }


@pytest.fixture
def quotas(raw: RawConnection) -> Iterator[Quotas]:
    made = Quotas(raw)
    yield made
    made.clear()


@pytest.fixture
def client_id(unused_name: Callable[[], str]) -> str:
    return unused_name()


@pytest.fixture
def limited(raw: RawConnection, client_id: str) -> Iterator[RawConnection]:
    """A connection of a client id that nobody else has."""
    with RawConnection(HOST, raw.socket.getpeername()[1], client_id=client_id) as connection:
        yield connection


@pytest.mark.case(AREA, "set, described by each kind of filter, removed")
def test_describe(quotas: Quotas, client_id: str) -> None:
    user, both = {"user": client_id}, {"user": client_id, "client-id": "app"}
    rest: Entity = {"user": client_id, "client-id": None}
    quotas.set(user, producer_byte_rate=1024.0, request_percentage=0.5)
    quotas.set(both, consumer_byte_rate=2048.0)
    quotas.set(rest, controller_mutation_rate=1.5)
    first = (user, {"producer_byte_rate": 1024.0, "request_percentage": 0.5})
    second, third = (both, {"consumer_byte_rate": 2048.0}), (rest, {"controller_mutation_rate": 1.5})
    mine = ("user", EXACT, client_id)
    assert quotas.described(mine) == sorted([first, second, third], key=str)
    assert quotas.described(mine, strict=True) == [first]
    assert quotas.described(mine, ("client-id", DEFAULT, None)) == [third]
    assert quotas.described(mine, ("client-id", SPECIFIED, None)) == sorted([second, third], key=str)
    assert quotas.described(mine, ("client-id", EXACT, "app"), strict=True) == [second]
    assert quotas.described(("user", EXACT, "nobody-" + client_id)) == []
    quotas.alter(user, {"producer_byte_rate": None})
    until([(user, {"request_percentage": 0.5})], lambda: quotas.described(mine, strict=True))


@pytest.mark.case(AREA, "what cannot be a quota, in Kafka's words")
def test_refusals(quotas: Quotas, client_id: str) -> None:
    user: Entity = {"user": client_id}
    address: Entity = {"ip": "192.0.2.1"}
    table: list[tuple[Entity, dict[str, float], str]] = [
        ({}, {"producer_byte_rate": 1}, "Invalid empty client quota entity"),
        ({"zone": "a"}, {"producer_byte_rate": 1}, "Unhandled client quota entity type: zone"),
        ({"user": ""}, {"producer_byte_rate": 1}, "Empty user not supported"),
        (
            {**user, **address},
            {"producer_byte_rate": 1},
            "Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId",
        ),
        (
            {"ip": "no such address"},
            {"connection_creation_rate": 1},
            "no such address is not a valid IP or resolvable host.",
        ),
        (user, {"no_such_key": 1}, "Invalid configuration key no_such_key"),
        (user, {"connection_creation_rate": 1}, "Invalid configuration key connection_creation_rate"),
        (address, {"producer_byte_rate": 1}, "Invalid configuration key producer_byte_rate"),
        (user, {"producer_byte_rate": float("nan")}, "Quota producer_byte_rate must be a finite number"),
        (user, {"producer_byte_rate": 0}, "Quota producer_byte_rate must be greater than 0"),
        (user, {"request_percentage": -1}, "Quota request_percentage must be greater than 0"),
        (user, {"producer_byte_rate": 1.5}, "producer_byte_rate cannot be a fractional value."),
        (
            user,
            {"consumer_byte_rate": 1e19},
            "Proposed value for consumer_byte_rate is too large for a LONG.",
        ),
        (
            address,
            {"connection_creation_rate": 1.5},
            "connection_creation_rate cannot be a fractional value.",
        ),
        (
            address,
            {"connection_creation_rate": 2.0**31},
            "Proposed value for connection_creation_rate is too large for an INT.",
        ),
        (user, {"producer_byte_rate": 5, "no_such_key": 1}, "Invalid configuration key no_such_key"),
    ]
    for entity, values, message in table:
        for validate_only in (True, False):
            result = quotas.alter(entity, values, validate_only=validate_only)
            assert (result["error_code"], result["error_message"]) == (INVALID_REQUEST, message)
    assert quotas.alter(user, {"producer_byte_rate": 5}, validate_only=True)["error_code"] == NONE
    assert quotas.alter(user, {"consumer_byte_rate": None})["error_code"] == NONE
    assert quotas.alter(user, {"no_such_key": None})["error_code"] == NONE
    op = {"key": "producer_byte_rate", "value": 5.0, "remove": False}
    (twice,) = quotas.alter_all([_entry({"user": "twice-" + client_id}, [op, op])])
    assert twice["error_code"] == INVALID_REQUEST
    assert twice["error_message"].startswith("Ignoring duplicate entity ClientQuotaEntity(entries=")
    assert quotas.described(("user", EXACT, client_id)) == []


def _throttled_produce(raw: RawConnection, topic: str) -> int:
    parts = [{"index": 0, "records": LARGE}]
    answer = raw.call(
        "produce", 9, acks=-1, timeout=10_000, topic_data=[{"name": topic, "partition_data": parts}]
    )
    assert answer["responses"][0]["partition_responses"][0]["error_code"] == NONE
    return int(answer["throttle_time"])


@pytest.mark.case(AREA, "a producer: an answer at once with a throttle time, then it is not read for so long")
def test_producer(
    quotas: Quotas, raw: RawConnection, limited: RawConnection, client_id: str, new_topic: NewTopic
) -> None:
    topic = new_topic()
    assert _throttled_produce(limited, topic) == 0
    quotas.set({"client-id": client_id}, producer_byte_rate=len(LARGE) // 12)
    # A connection of before; Kafka counts from its first request under the quota on.
    throttle_ms = _throttled_produce(limited, topic)
    assert 1_800 <= throttle_ms <= 2_200  # the batch takes 12 s of its quota, the empty window has 10
    began = time.monotonic()
    limited.send("metadata", 12, topics=[])
    assert _throttled_produce(raw, topic) == 0, "others are not affected"
    limited.receive()
    assert time.monotonic() - began >= throttle_ms / 1000 - 0.1
    assert raw.list_offset(topic, -1)["offset"] == 3


@pytest.mark.case(AREA, "a consumer: an empty answer with a throttle time, and the records later")
def test_consumer(
    quotas: Quotas, limited: RawConnection, client_id: str, new_topic: NewTopic, raw: RawConnection
) -> None:
    topic = new_topic()
    raw.produce(topic, LARGE)
    quotas.set({"client-id": client_id}, consumer_byte_rate=int(len(LARGE) / 10.5))

    def fetch() -> Answer:
        wanted = {
            "partition": 0,
            "current_leader_epoch": -1,
            "fetch_offset": 0,
            "partition_max_bytes": 1 << 20,
        }
        topics = [{"topic": topic, "partitions": [wanted]}]
        return limited.call(
            "fetch", 12, max_wait=0, min_bytes=1, max_bytes=50 << 20, session_epoch=0, topics=topics
        )

    began = time.monotonic()
    first = fetch()
    assert (first["responses"], first["session_id"], first["error_code"]) == ([], 0, NONE)
    throttle_ms = int(first["throttle_time"])
    assert 400 <= throttle_ms <= 700
    for _ in range(20):
        answer = fetch()
        if answer["responses"]:
            break
    assert answer["responses"][0]["partitions"][0]["records"] is not None
    assert answer["throttle_time"] == 0 and answer["session_id"] > 0
    assert time.monotonic() - began >= throttle_ms / 1000 - 0.1
    assert fetch()["responses"] == []


@pytest.mark.case(AREA, "the time of requests: one wait is a second at most")
def test_request_percentage(quotas: Quotas, limited: RawConnection, client_id: str) -> None:
    limited.call("metadata", 12, topics=[])
    quotas.set({"client-id": client_id}, request_percentage=0.000_001)
    found = [int(limited.call(*each, **fields)["throttle_time"]) for each, fields in _ANY]
    assert found == [1_000] * len(_ANY)


_ANY: list[tuple[tuple[str, int], dict[str, Any]]] = [
    (("metadata", 12), {"topics": []}),
    (("api_versions", 3), {"client_software_name": "a", "client_software_version": "1"}),
]


def _create(raw: RawConnection, version: int, *sizes: int, validate_only: bool = False) -> Answer:
    stem = f"quota-{time.monotonic_ns()}"
    topics = [
        {"name": f"{stem}-{place}", "num_partitions": size, "replication_factor": 1}
        for place, size in enumerate(sizes)
    ]
    return raw.call("create_topics", version, topics=topics, timeout=10_000, validate_only=validate_only)


@pytest.mark.case(AREA, "changes of partitions: refused with a throttle time, older versions served")
def test_mutations(quotas: Quotas, raw: RawConnection, client_id: str) -> None:
    quotas.set({"client-id": client_id}, controller_mutation_rate=1)
    port = raw.socket.getpeername()[1]

    def connected() -> RawConnection:
        return RawConnection(HOST, port, client_id=client_id)

    with connected() as first:
        answer = _create(first, 7, 12, 12, 12)  # eleven credits, then a debt of one
        found = sorted((each["error_code"], each["error_message"]) for each in answer["topics"])
        assert found == [(0, None), *[(THROTTLING_QUOTA_EXCEEDED, None)] * 2]
        assert 500 <= answer["throttle_time"] <= 1_000
    with connected() as second:
        answer = _create(second, 5, 3)
        assert answer["topics"][0]["error_code"] == NONE and 2_000 <= answer["throttle_time"] <= 4_000
    with connected() as third:
        answer = _create(third, 7, 1, validate_only=True)
        assert answer["topics"][0]["error_code"] == THROTTLING_QUOTA_EXCEEDED


@pytest.mark.case(AREA, "connections of an address above its rate are closed within two seconds")
def test_connections(quotas: Quotas, raw: RawConnection) -> None:
    port = raw.socket.getpeername()[1]
    quotas.set({"ip": HOST}, connection_creation_rate=1)
    opened = [RawConnection(HOST, port) for _ in range(15)]
    try:
        closed = 0
        for each in opened:
            try:
                each.call("api_versions", 0)
            except (ConnectionClosed, TimeoutError):
                closed += 1
        assert 4 <= closed <= 6, "ten or eleven come at once"
        raw.call("api_versions", 0)
    finally:
        for each in opened:
            each.close()


@pytest.mark.case("Kafka's tools", "kafka-configs: quotas of users, clients, ips and defaults")
def test_tool(tool: Tool, target: Target, quotas: Quotas, client_id: str) -> None:
    def run(*words: str) -> str:
        result = tool(_CONFIGS, *words)
        assert result.status == 0, result.stdout + result.stderr
        return result.stdout

    def is_shown(text: str, where: tuple[str, ...]) -> bool:
        return text in run("--describe", *where)

    user = ("--entity-type", "users", "--entity-name", client_id)
    app = ("--entity-type", "clients", "--entity-name", "app")
    rest = ("--entity-type", "clients", "--entity-default")
    address = ("--entity-type", "ips", "--entity-name", "192.0.2.9")
    for where, text, key in (
        (user, f"Quota configs for user-principal '{client_id}' are ", "producer_byte_rate"),
        (
            (*user, *app),
            f"Quota configs for user-principal '{client_id}', client-id 'app' are ",
            "consumer_byte_rate",
        ),
        (
            (*user, *rest),
            f"Quota configs for user-principal '{client_id}', the default client-id are ",
            "request_percentage",
        ),
        (address, "Quota configs for ip '192.0.2.9' are ", "connection_creation_rate"),
    ):
        run("--alter", *where, "--add-config", f"{key}=5")
        until(True, partial(is_shown, f"{text}{key}=5.0", where))
        run("--alter", *where, "--delete-config", key)
        until(False, partial(is_shown, text, where))
    refused = tool(_CONFIGS, "--alter", *user, "--add-config", "producer_byte_rate=-1")
    assert refused.status == 1
    assert "Quota producer_byte_rate must be greater than 0" in refused.stdout + refused.stderr
