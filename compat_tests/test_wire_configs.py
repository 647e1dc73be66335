"""Configurations by hand: every operation, resource and refusal. Expected is what Kafka 4.4.0 does."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import pytest

from compat_tests.conftest import NewTopic, unique_name
from compat_tests.harness import World, both_brokers
from compat_tests.raw import Answer, RawConnection, batch, raw_connection
from compat_tests.targets import Target
from compat_tests.until import until

TOPIC, BROKER, LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)

NONE = 0
UNKNOWN_TOPIC_OR_PARTITION = 3
MESSAGE_TOO_LARGE = 10
INVALID_TOPIC_EXCEPTION = 17
UNSUPPORTED_VERSION = 35
INVALID_CONFIG = 40
INVALID_REQUEST = 42
RESOURCE_NOT_FOUND = 91
DUPLICATE_RESOURCE = 92

Resource = tuple[int, str]
Edit = tuple[str, int, str | None]
NODE, CLUSTER = (BROKER, "1"), (BROKER, "")


def alter_all(
    raw: RawConnection,
    *changes: tuple[Resource, Sequence[Edit]],
    validate_only: bool = False,
    version: int = 1,
) -> list[int]:
    """IncrementalAlterConfigs; the error codes."""
    resources = [
        {
            "resource_type": kind,
            "resource_name": name,
            "configs": [
                {"name": key, "config_operation": operation, "value": value}
                for key, operation, value in edits
            ],
        }
        for (kind, name), edits in changes
    ]
    answer = raw.call("incremental_alter_configs", version, resources=resources, validate_only=validate_only)
    found = {(each["resource_type"], each["resource_name"]): each for each in answer["responses"]}
    for each in found.values():
        assert (each["error_message"] is None) == (each["error_code"] == NONE)
    return [found[resource]["error_code"] for resource, _ in changes]


def alter(raw: RawConnection, resource: Resource, *edits: Edit, validate_only: bool = False) -> int:
    """The same for one resource."""
    (code,) = alter_all(raw, (resource, edits), validate_only=validate_only)
    return code


def replace(raw: RawConnection, resource: Resource, version: int = 2, **more: Any) -> int:
    """AlterConfigs of one resource; the error code."""
    configs = [{"name": name, "value": value} for name, value in more.pop("configs").items()]
    resources = [{"resource_type": resource[0], "resource_name": resource[1], "configs": configs}]
    answer = raw.call("alter_configs", version, resources=resources, **more)
    return int(answer["responses"][0]["error_code"])


def describe(raw: RawConnection, resource: Resource, keys: list[str] | None = None) -> Answer:
    wanted = {"resource_type": resource[0], "resource_name": resource[1], "configuration_keys": keys}
    found: Answer = raw.call("describe_configs", 4, resources=[wanted], include_synonyms=True)["results"][0]
    return found


def described(raw: RawConnection, resource: Resource) -> dict[str, Answer]:
    found = describe(raw, resource)
    assert found["error_code"] == NONE, found
    return {each["name"]: each for each in found["configs"]}


def value(raw: RawConnection, resource: Resource, name: str) -> tuple[Any, int]:
    found = described(raw, resource)[name]
    return found["value"], found["config_source"]


def _text(raw: RawConnection, resource: Resource, name: str) -> Any:
    return described(raw, resource)[name]["value"]


@pytest.fixture
def _brokers_as_before(raw: RawConnection) -> Iterator[None]:
    """The brokers serve other cases, too."""
    yield
    names = ("log.retention.ms", "log.retention.bytes", "message.max.bytes", "max.connections.per.ip")
    for resource in (NODE, CLUSTER):
        assert alter(raw, resource, *((name, DELETE, None) for name in names)) == NONE


# -- topics -------------------------------------------------------------------------------------------------


@pytest.mark.case("Configurations on the wire", "a topic's are set and deleted, one by one")
@pytest.mark.parametrize("version", [0, 1])
def test_set_and_delete(raw: RawConnection, new_topic: NewTopic, version: int) -> None:
    topic = (TOPIC, new_topic(configs={"max.message.bytes": "1000"}))
    assert alter_all(raw, (topic, [("retention.ms", SET, " 5 ")]), version=version) == [NONE]
    until(("5", 1), lambda: value(raw, topic, "retention.ms"))
    assert value(raw, topic, "max.message.bytes") == ("1000", 1)
    assert alter_all(raw, (topic, [("retention.ms", DELETE, "any")]), version=version) == [NONE]
    until(("604800000", 5), lambda: value(raw, topic, "retention.ms"))
    assert alter(raw, topic, ("no.such", DELETE, None)) == NONE
    assert alter(raw, topic) == NONE


@pytest.mark.case("Configurations on the wire", "a topic's largest batch follows at once")
def test_in_force(raw: RawConnection, new_topic: NewTopic) -> None:
    topic = new_topic()
    large = batch([b"x" * 5_000])
    assert raw.produce(topic, large)["error_code"] == NONE
    assert alter(raw, (TOPIC, topic), ("max.message.bytes", SET, "1000")) == NONE
    until(MESSAGE_TOO_LARGE, lambda: raw.produce(topic, large)["error_code"])


@pytest.mark.case("Configurations on the wire", "lists are appended to and subtracted from")
def test_lists(raw: RawConnection, new_topic: NewTopic) -> None:
    topic, name = (TOPIC, new_topic()), "cleanup.policy"
    assert alter(raw, topic, (name, APPEND, "delete")) == NONE
    until(("delete", 1), lambda: value(raw, topic, name))
    assert alter(raw, topic, (name, SUBTRACT, "delete")) == NONE
    until(("", 1), lambda: value(raw, topic, name))
    assert alter(raw, topic, (name, SET, "delete,delete")) == NONE
    until(("delete", 1), lambda: value(raw, topic, name))
    for operation in (APPEND, SUBTRACT):
        assert alter(raw, topic, ("retention.ms", operation, "1")) == INVALID_CONFIG


REFUSED: dict[str, tuple[int, list[Edit]]] = {
    "a null value": (INVALID_REQUEST, [("retention.ms", SET, None)]),
    "a null to append": (INVALID_REQUEST, [("cleanup.policy", APPEND, None)]),
    "no number": (INVALID_CONFIG, [("retention.ms", SET, "often")]),
    "an empty number": (INVALID_CONFIG, [("retention.ms", SET, "")]),
    "a number too small": (INVALID_CONFIG, [("retention.ms", SET, "-2")]),
    "none of the choices": (INVALID_CONFIG, [("message.timestamp.type", SET, "Never")]),
    "an unknown name": (INVALID_CONFIG, [("no.such", SET, "1")]),
    "an empty name": (INVALID_CONFIG, [("", SET, "1")]),
    "a name twice": (INVALID_REQUEST, [("retention.ms", SET, "1"), ("retention.ms", DELETE, None)]),
    "one of two wrong": (INVALID_CONFIG, [("retention.bytes", SET, "1"), ("retention.ms", SET, "x")]),
}


@pytest.mark.case("Configurations on the wire", "refused and nothing changed: {what}")
@pytest.mark.parametrize("what", list(REFUSED))
def test_refused(raw: RawConnection, new_topic: NewTopic, what: str) -> None:
    topic = (TOPIC, new_topic())
    code, edits = REFUSED[what]
    assert alter(raw, topic, *edits, validate_only=True) == code
    assert alter(raw, topic, *edits) == code
    assert not [name for name, each in described(raw, topic).items() if each["config_source"] == TOPIC - 1]


@pytest.mark.case("Configurations on the wire", "each resource for itself, and at most once")
def test_each_for_itself(raw: RawConnection, new_topic: NewTopic) -> None:
    one, two, three = ((TOPIC, new_topic()) for _ in range(3))
    five: list[Edit] = [("retention.ms", SET, "5")]
    missing = (TOPIC, "no-such-topic")
    codes = alter_all(raw, (one, five), (missing, five), (two, five), (two, five), (three, five))
    assert codes == [NONE, UNKNOWN_TOPIC_OR_PARTITION, INVALID_REQUEST, INVALID_REQUEST, NONE]
    until(("5", 1), lambda: value(raw, three, "retention.ms"))
    assert value(raw, two, "retention.ms") == ("604800000", 5)
    assert alter_all(raw) == []


@pytest.mark.case("Configurations on the wire", "only checked: nothing changes")
@pytest.mark.usefixtures("_brokers_as_before")
def test_validate_only(raw: RawConnection, new_topic: NewTopic) -> None:
    topic = (TOPIC, new_topic())
    assert alter(raw, topic, ("retention.ms", SET, "5"), validate_only=True) == NONE
    assert alter(raw, CLUSTER, ("log.retention.ms", SET, "5"), validate_only=True) == NONE
    assert replace(raw, topic, configs={"retention.ms": "5"}, validate_only=True) == NONE
    assert value(raw, topic, "retention.ms") == ("604800000", 5)


NOT_THERE: dict[str, tuple[int, Resource]] = {
    "the empty topic": (INVALID_REQUEST, (TOPIC, "")),
    "a bad topic name": (INVALID_TOPIC_EXCEPTION, (TOPIC, "a b")),
    "an unknown topic": (UNKNOWN_TOPIC_OR_PARTITION, (TOPIC, "no-such-topic")),
    "another broker": (INVALID_REQUEST, (BROKER, "7")),
    "no number of a broker": (INVALID_REQUEST, (BROKER, "x")),
    "the loggers of no broker": (INVALID_REQUEST, (LOGGER, "")),
    "the loggers of another broker": (INVALID_REQUEST, (LOGGER, "7")),
    "the empty group": (INVALID_REQUEST, (GROUP, "")),
    "the empty subscription": (INVALID_REQUEST, (CLIENT_METRICS, "")),
    "type 0": (INVALID_REQUEST, (0, "x")),
    "type 1": (INVALID_REQUEST, (1, "x")),
    "type 64": (INVALID_REQUEST, (64, "x")),
}


@pytest.mark.case("Configurations on the wire", "altering {what} is refused")
@pytest.mark.parametrize("what", list(NOT_THERE))
def test_not_there(raw: RawConnection, what: str) -> None:
    code, resource = NOT_THERE[what]
    assert alter(raw, resource, ("retention.ms", SET, "1")) == code


@pytest.mark.case("Configurations on the wire", "describing {what} is refused")
@pytest.mark.parametrize("what", list(NOT_THERE))
def test_not_described(raw: RawConnection, what: str) -> None:
    code, resource = NOT_THERE[what]
    if resource == (TOPIC, ""):
        code = INVALID_TOPIC_EXCEPTION
    found = describe(raw, resource)
    assert (found["error_code"], found["configs"]) == (code, [])


@pytest.mark.case("Configurations on the wire", "AlterConfigs resets what it does not name")
@pytest.mark.parametrize("version", range(3))
def test_replace(raw: RawConnection, new_topic: NewTopic, version: int) -> None:
    topic = (TOPIC, new_topic(configs={"retention.ms": "5", "retention.bytes": "6"}))
    assert replace(raw, topic, version, configs={"retention.bytes": "7"}) == NONE
    until(("7", 1), lambda: value(raw, topic, "retention.bytes"))
    assert value(raw, topic, "retention.ms") == ("604800000", 5)
    assert replace(raw, topic, version, configs={"retention.ms": None}) == INVALID_REQUEST
    assert replace(raw, topic, version, configs={"retention.ms": "x"}) == INVALID_CONFIG
    assert replace(raw, topic, version, configs={}) == NONE
    until(("-1", 5), lambda: value(raw, topic, "retention.bytes"))
    assert replace(raw, (LOGGER, "1"), version, configs={"root": "INFO"}) == INVALID_REQUEST


@pytest.mark.case(
    "Configurations on the wire", "only the names asked for are described; none named means all"
)
def test_keys(raw: RawConnection, new_topic: NewTopic) -> None:
    topic = (TOPIC, new_topic())
    found = describe(raw, topic, ["retention.ms", "no.such"])
    assert [each["name"] for each in found["configs"]] == ["retention.ms"]
    assert len(describe(raw, topic, [])["configs"]) == len(describe(raw, topic)["configs"])


# -- brokers ------------------------------------------------------------------------------------------------


@pytest.mark.case("Configurations on the wire", "a broker's: for all, for one, in force for topics; synonyms")
@pytest.mark.usefixtures("_brokers_as_before")
def test_brokers(raw: RawConnection, new_topic: NewTopic) -> None:
    topic, name = (TOPIC, new_topic()), "log.retention.ms"
    assert value(raw, NODE, name) == (None, 5)
    assert alter(raw, CLUSTER, (name, SET, "86400001")) == NONE
    until(("86400001", 3), lambda: value(raw, topic, "retention.ms"))
    assert alter(raw, NODE, (name, SET, "86400002")) == NONE
    until(("86400002", 2), lambda: value(raw, topic, "retention.ms"))
    found = described(raw, NODE)[name]
    assert [(each["name"], each["value"], each["source"]) for each in found["synonyms"]] == [
        ("log.retention.ms", "86400002", 2),
        ("log.retention.ms", "86400001", 3),
        ("log.retention.hours", "168", 5),
    ]
    for_all = described(raw, CLUSTER)[name]
    assert (for_all["value"], for_all["config_source"], len(for_all["synonyms"])) == ("86400001", 3, 1)
    assert alter(raw, NODE, (name, DELETE, None)) == NONE
    until(("86400001", 3), lambda: value(raw, topic, "retention.ms"))
    assert alter(raw, CLUSTER, (name, DELETE, None)) == NONE
    until(("604800000", 5), lambda: value(raw, topic, "retention.ms"))


@pytest.mark.case("Configurations on the wire", "a broker's largest batch is in force for topics at once")
@pytest.mark.usefixtures("_brokers_as_before")
def test_message_max_bytes(raw: RawConnection, target: Target, new_topic: NewTopic) -> None:
    topic = new_topic(configs=target.together)
    large = batch([b"x" * 5_000])
    assert raw.produce(topic, large)["error_code"] == NONE
    assert alter(raw, NODE, ("message.max.bytes", SET, "1000")) == NONE
    until(MESSAGE_TOO_LARGE, lambda: raw.produce(topic, large)["error_code"])


@pytest.mark.case("Configurations on the wire", "a broker's limit on connections is in force at once")
@pytest.mark.usefixtures("_brokers_as_before")
def test_max_connections(raw: RawConnection, target: Target) -> None:
    assert alter(raw, NODE, ("max.connections.per.ip", SET, "1")) == NONE

    def one_more_is_closed() -> bool:
        with raw_connection(target.bootstrap) as more:
            return more.is_closed_by_peer(1.0)

    until(True, one_more_is_closed)


@pytest.mark.case("Configurations on the wire", "what needs a restart is INVALID_REQUEST and read-only")
@pytest.mark.parametrize("resource", [NODE, CLUSTER], ids=["one", "all"])
@pytest.mark.usefixtures("_brokers_as_before")
def test_fixed(raw: RawConnection, resource: Resource) -> None:
    everything = described(raw, NODE)
    for name in ("num.partitions", "log.retention.hours", "advertised.listeners", "log.dirs", "node.id"):
        assert everything[name]["read_only"], name
        edits: list[Edit] = [(name, SET, "4"), ("log.retention.ms", SET, "86400001")]
        assert alter(raw, resource, *edits) == INVALID_REQUEST
        assert alter(raw, resource, (name, DELETE, None)) == NONE
    assert not everything["log.retention.ms"]["read_only"]
    assert value(raw, NODE, "log.retention.ms") == (None, 5)
    for text in ("x", "-5", ""):
        assert alter(raw, resource, ("message.max.bytes", SET, text)) == INVALID_REQUEST
    assert alter(raw, resource, ("message.max.bytes", APPEND, "5")) == INVALID_CONFIG


# -- groups, loggers, client metrics, quotas ----------------------------------------------------------------


@pytest.mark.case(
    "Configurations on the wire", "a group's: defaults before it exists, set, bounded, reset, listed"
)
def test_groups(raw: RawConnection, unused_name: Callable[[], str]) -> None:
    group, name = (GROUP, unused_name()), "consumer.session.timeout.ms"
    before = described(raw, group)
    assert len(before) == 21
    assert (
        alter(raw, group, (name, SET, "50000"), ("share.auto.offset.reset", SET, "by_duration:PT1H")) == NONE
    )
    until(("50000", 8), lambda: value(raw, group, name))
    assert group[1] in _listed(raw, GROUP)
    for key, text in ((name, "5"), (name, "70000"), (name, "x"), (name, "0"), ("no.such", "1")):
        assert alter(raw, group, (key, SET, text)) == INVALID_CONFIG
    for text in ("none", "by_duration:xx", "by_duration:-PT1H"):
        assert alter(raw, group, ("share.auto.offset.reset", SET, text)) == INVALID_CONFIG
    assert alter(raw, group, (name, SET, None)) == INVALID_REQUEST
    assert alter(raw, group, (name, APPEND, "50000")) == INVALID_CONFIG
    assert replace(raw, group, configs={}) == NONE
    until(before, lambda: described(raw, group))
    assert group[1] not in _listed(raw, GROUP)


NEW_IN_4_4: dict[str, list[tuple[str, str, str, str | None]]] = {
    "topic": [
        ("errors.deadletterqueue.group.enable", "false", "true", "x"),
        ("max.decompressed.message.bytes", "2147483639", "1000", "0"),
        ("remote.copy.lag.bytes", "-1", "5", "-2"),
        ("remote.copy.lag.ms", "0", "5", "-2"),
    ],
    "group": [
        ("errors.deadletterqueue.copy.record.enable", "false", "true", "x"),
        ("errors.deadletterqueue.topic.name", "", "dlq.x", None),
        ("streams.assignor.name", "sticky", "sticky", "no-such"),
        ("streams.rack.aware.assignment.tags", "", "zone", None),
    ],
    "broker": [
        ("errors.deadletterqueue.auto.create.topics.enable", "false", "true", "x"),
        ("errors.deadletterqueue.topic.name.prefix", "dlq.", "dead.", None),
        ("log.remote.copy.lag.bytes", "-1", "5", "-2"),
        ("log.remote.copy.lag.ms", "0", "5", "-2"),
        ("max.decompressed.message.bytes", "2147483639", "1000000000", "0"),
    ],
}
"""Settings that came with Kafka 4.4.0 and change while it runs: name, default, another value, a wrong one."""


@pytest.mark.case("Configurations on the wire", "what is new in 4.4.0, of a {kind}: default, set, refused")
@pytest.mark.parametrize("kind", list(NEW_IN_4_4))
def test_new_names(
    raw: RawConnection, new_topic: NewTopic, unused_name: Callable[[], str], kind: str
) -> None:
    resource = {"topic": (TOPIC, new_topic()), "group": (GROUP, unused_name()), "broker": CLUSTER}[kind]
    shown = NODE if kind == "broker" else resource
    for name, default, other, wrong in NEW_IN_4_4[kind]:
        is_shown = name in described(raw, shown)
        assert not is_shown or value(raw, shown, name)[0] == default
        try:
            for text in (default, other):
                assert alter(raw, resource, (name, SET, text)) == NONE, (name, text)
            if is_shown:
                until(other, partial(_text, raw, shown, name))
            if wrong is not None:
                refused = INVALID_REQUEST if kind == "broker" else INVALID_CONFIG
                assert alter(raw, resource, (name, SET, wrong)) == refused, (name, wrong)
        finally:
            assert alter(raw, resource, (name, DELETE, None)) == NONE


def _listed(raw: RawConnection, *types: int) -> list[str]:
    answer = raw.call("list_config_resources", 1, resource_types=list(types))
    assert answer["error_code"] == NONE
    return [each["resource_name"] for each in answer["config_resources"]]


@pytest.mark.case("Configurations on the wire", "ListConfigResources: each type, all, one that is none")
def test_list(raw: RawConnection, target: Target, new_topic: NewTopic) -> None:
    topic = new_topic()
    assert topic in _listed(raw, TOPIC)
    assert topic in _listed(raw)
    assert _listed(raw, BROKER) == _listed(raw, LOGGER) == [str(each) for each in target.node_ids]
    assert raw.call("list_config_resources", 0)["config_resources"] == []
    for kind in (0, 1, 99):
        answer = raw.call("list_config_resources", 1, resource_types=[TOPIC, kind])
        assert (answer["error_code"], answer["config_resources"]) == (UNSUPPORTED_VERSION, [])


@pytest.mark.case("Configurations on the wire", "log levels: described, set, inherited again; refusals")
def test_loggers(raw: RawConnection) -> None:
    node = (LOGGER, "1")
    found = described(raw, node)
    assert (found["root"]["value"], found["root"]["config_source"], found["root"]["config_type"]) == (
        "INFO",
        6,
        0,
    )
    other = next(name for name in sorted(found) if name != "root" and found[name]["value"] == "INFO")
    assert alter(raw, node, (other, SET, "ERROR")) == NONE
    assert value(raw, node, other) == ("ERROR", 6)
    assert alter(raw, node, (other, DELETE, None)) == NONE
    assert value(raw, node, other) == ("INFO", 6)
    for edit, code in (
        (("root", SET, "info"), INVALID_CONFIG),
        (("no.such.logger", SET, "INFO"), INVALID_CONFIG),
        (("no.such.logger", DELETE, None), INVALID_CONFIG),
        (("root", SET, None), INVALID_REQUEST),
        (("root", DELETE, None), INVALID_REQUEST),
        (("root", APPEND, "INFO"), INVALID_REQUEST),
    ):
        assert alter(raw, node, edit) == code


@pytest.mark.case("Configurations on the wire", "client metrics: defaults without a subscription")
def test_client_metrics(raw: RawConnection) -> None:
    found = described(raw, (CLIENT_METRICS, "none-such"))
    assert {name: each["value"] for name, each in found.items()} == {
        "interval.ms": "300000",
        "match": "",
        "metrics": "",
    }
    assert alter(raw, (CLIENT_METRICS, "none-such"), ("interval.ms", DELETE, None)) == NONE
    assert alter(raw, (CLIENT_METRICS, "none-such"), ("no.such", SET, "1")) == INVALID_REQUEST


@pytest.mark.case("Configurations on the wire", "quotas and SCRAM credentials: there are none; refusals")
def test_quotas(raw: RawConnection) -> None:
    def quotas(*components: tuple[str, int, str | None]) -> int:
        wanted = [{"entity_type": kind, "match_type": how, "match": name} for kind, how, name in components]
        answer = raw.call("describe_client_quotas", 1, components=wanted, strict=False)
        assert answer["entries"] == (None if answer["error_code"] else [])
        return int(answer["error_code"])

    assert quotas() == quotas(("user", 2, None), ("client-id", 1, None)) == quotas(("ip", 0, "::1")) == NONE
    assert quotas(("foo", 0, "x")) == UNSUPPORTED_VERSION
    for component in (("user", 7, "x"), ("user", 0, None), ("user", 1, "x"), ("user", 2, "x"), ("", 2, None)):
        assert quotas(component) == INVALID_REQUEST
    assert quotas(("user", 2, None), ("user", 2, None)) == INVALID_REQUEST
    assert quotas(("user", 2, None), ("ip", 2, None)) == INVALID_REQUEST
    nobody = raw.call("describe_user_scram_credentials", 0, users=None)
    assert (nobody["error_code"], nobody["results"]) == (NONE, [])
    named = [{"name": name} for name in ("a", "b", "a")]
    results = raw.call("describe_user_scram_credentials", 0, users=named)["results"]
    assert {each["user"]: each["error_code"] for each in results} == {
        "a": DUPLICATE_RESOURCE,
        "b": RESOURCE_NOT_FOUND,
    }


# -- names, types, defaults and sources on both -------------------------------------------------------------

OURS: dict[str, str] = {
    "advertised.listeners": "Kafka's is null where nothing is set, Lockstep's empty",
    "controller.listener.names": "Kafka needs one",
    "group.coordinator.rebalance.protocols": "Lockstep serves no streams groups",
    "listener.security.protocol.map": "Lockstep reads a list where Kafka reads a text, and has one protocol",
    "listeners": "each broker is told its own",
    "log.dirs": "each broker is told its own",
    "max.connections": "Lockstep's default is a number that it can hold",
    "min.insync.replicas": "Kafka with eligible leader replicas always sets it for the cluster",
    "node.id": "Kafka is told its own",
    "offsets.topic.num.partitions": "the Kafka of these cases is told 1",
    "offsets.topic.replication.factor": "the Kafka of these cases is told 1",
    "transaction.state.log.num.partitions": "the Kafka of these cases is told 1",
    "transaction.state.log.replication.factor": "the Kafka of these cases is told 1",
    "queued.max.request.bytes": "Lockstep has a limit by default",
    "socket.listen.backlog.size": "Lockstep's default is larger",
    "socket.receive.buffer.bytes": "Lockstep lets the system tune it",
    "socket.send.buffer.bytes": "Lockstep lets the system tune it",
}
"""Names of both brokers whose type, value or source differ, and why."""
_WITH_A_PREFIX = "changed while running by listener.name.NAME."
READ_ONLY: dict[str, str] = {
    "listeners": "not changed while running",
    "listener.security.protocol.map": "not changed while running",
    "sasl.enabled.mechanisms": "not changed while running",
    "sasl.jaas.config": "not changed while running",
    "ssl.cipher.suites": "not changed while running",
    "ssl.client.auth": "not changed while running",
    "ssl.enabled.protocols": "not changed while running",
    **dict.fromkeys(
        (
            "ssl.key.password", "ssl.keystore.certificate.chain", "ssl.keystore.key", "ssl.keystore.location",
            "ssl.keystore.password", "ssl.keystore.type", "ssl.truststore.certificates",
            "ssl.truststore.location", "ssl.truststore.password", "ssl.truststore.type",
        ),
        _WITH_A_PREFIX,
    ),
}  # fmt: skip
"""What Kafka lets be changed while it runs and Lockstep does not."""


@pytest.mark.tier(name="rest")
@pytest.mark.parametrize("kind", ["topic", "broker", "group", "client metrics"])
def test_the_same_names_have_the_same_types_values_and_sources(world: World, kind: str) -> None:
    if not both_brokers():
        pytest.skip("needs both brokers")
    name = unique_name()
    resource = {
        "topic": (TOPIC, name),
        "broker": NODE,
        "group": (GROUP, name),
        "client metrics": (CLIENT_METRICS, name),
    }[kind]
    found = []
    for target in ("lockstep", "kafka"):
        with raw_connection(world.target(target).bootstrap) as raw:
            if kind == "topic":
                raw.create_topic(name)
            found.append(described(raw, resource))
    ours, kafkas = found
    both = ours.keys() & kafkas.keys()
    if kind == "broker":
        assert len(both) >= 25
    else:
        own = {"lockstep.group", "lockstep.locks"} if kind == "topic" else set()
        assert ours.keys() - kafkas.keys() == own
        assert kafkas.keys() - ours.keys() == set()
    told = ("value", "config_type", "config_source", "is_sensitive")
    different = {
        name: [[side[name][what] for what in told] for side in (ours, kafkas)]
        for name in sorted(both)
        if any(ours[name][what] != kafkas[name][what] for what in told)
    }
    assert {name: each for name, each in different.items() if name not in OURS} == {}
    if kind == "broker":
        assert set(OURS) <= different.keys(), "these agree now"
    fixed = {name for name in both if ours[name]["read_only"] != kafkas[name]["read_only"]}
    assert fixed <= READ_ONLY.keys()
    for name in fixed:
        assert ours[name]["read_only"], f"{name}: Kafka does not let it be changed"
