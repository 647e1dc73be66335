"""Lock headers, which any client can set: what is refused, what the application hears of it and of what it
had sent behind, and that the log has what was acknowledged and nothing else.

Only on Lockstep: Apache Kafka stores these headers and looks at none. What each client makes of a refusal is
pinned by its name, so that a version that makes something else of it is seen.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from itertools import chain

import pytest

from compat_tests import harness
from compat_tests.clients.aio_kafka import AioKafka
from compat_tests.clients.confluent import Confluent
from compat_tests.clients.face import Client, Header, Message, Refused, Sent
from compat_tests.clients.go import FranzGo, KafkaGo, Sarama
from compat_tests.clients.java import Java, Java34, Java39, Java43
from compat_tests.clients.kafka_python import KafkaPython
from compat_tests.clients.kafka_python_2 import KafkaPython2
from compat_tests.clients.kcat import Kcat
from compat_tests.clients.node import KafkaJs, Platformatic
from compat_tests.conftest import NewTopic
from compat_tests.harness import World
from compat_tests.java_driver import ToolResult
from compat_tests.kafka_jars import skip_or_fail
from compat_tests.raw import RawConnection, raw_connection, values_in
from compat_tests.targets import LockstepTarget, Target

AREA = "Locks"
LOCKED = {"lockstep.locks": "true"}
STORED = 0
POLICY_VIOLATION = 44
OUT_OF_ORDER_SEQUENCE_NUMBER = 45
INVALID_RECORD = 87
UNKNOWN = -1
PURGED = -152

_JAVA = ("PolicyViolationException", "InvalidRecordException")
_CONSTANTS = ("POLICY_VIOLATION", "INVALID_RECORD")
ERRORS = {
    **dict.fromkeys((Java34.name, Java39.name, Java43.name, Java.name), _JAVA),
    **dict.fromkeys((Confluent.name, KafkaJs.name, Platformatic.name, FranzGo.name), _CONSTANTS),
    KafkaPython.name: ("PolicyViolationError", "InvalidRecordError"),
    KafkaPython2.name: ("PolicyViolationError", "InvalidRecordError"),
    AioKafka.name: ("PolicyViolationError", "UnknownError"),
    Sarama.name: ("sarama.KError", "sarama.KError"),
    KafkaGo.name: ("Policy Violation", "Invalid Record"),
}
"""What a client calls 44 and 87."""
HEARS_WHY = frozenset(
    {Java34.name, Java39.name, Java43.name, Java.name, KafkaPython.name, KafkaPython2.name, KafkaGo.name}
)
"""Where the broker's line reaches the application; elsewhere it has the code alone."""
NO_MORE = {
    # its idempotent producer is fatal after any refusal
    (KafkaPython.name, True): (POLICY_VIOLATION, POLICY_VIOLATION, POLICY_VIOLATION),
    # its idempotent producer takes the refused sequence for used
    (AioKafka.name, True): (OUT_OF_ORDER_SEQUENCE_NUMBER,) * 3,
    # fails what it had buffered for the partition, too
    (FranzGo.name, True): (POLICY_VIOLATION, POLICY_VIOLATION, STORED),
    (FranzGo.name, False): (POLICY_VIOLATION, POLICY_VIOLATION, STORED),
}
"""(client, idempotent) -> what becomes of two batches sent behind a refused one, and of one sent after it."""


@pytest.fixture(
    params=[
        pytest.param(each, id=f"on-{each}")
        for each in harness.wanted_targets()
        if each.startswith(LockstepTarget.name)
    ]
)
def target(request: pytest.FixtureRequest, world: World) -> Iterator[Target]:
    """The brokers that other cases use, too."""
    found = world.target(request.param)
    yield found
    assert found.running, f"the broker died during this case:\n{found.log_tail()}"


@pytest.fixture
def topic(new_topic: NewTopic) -> str:
    return new_topic(configs=LOCKED)


def _message(value: bytes, **asked: str) -> Message:
    """`_message(b"v", hwm="-1", write_lock="a")`. Long enough for a batch of its own."""
    headers: tuple[Header, ...] = tuple(
        (f"lockstep-{name.replace('_', '-')}", text.encode()) for name, text in asked.items()
    )
    return Message(value.ljust(600, b"."), headers=headers)


def _writes(value: bytes, lock: str) -> Message:
    return _message(value, hwm="-1", write_lock=lock)


def _log(raw: RawConnection, topic: str) -> list[tuple[int, bytes]]:
    return [
        (offset, (value or b"").rstrip(b".")) for offset, value in values_in(raw.fetch(topic, 0)["records"])
    ]


def _told(
    client: Client, topic: str, rounds: Sequence[Sequence[Message]], idempotent: bool
) -> list[tuple[Message, Sent]]:
    """What a new producer heard of each."""
    if idempotent and "idempotent without waiting" in client.cannot:
        rounds = [[each] for each in chain(*rounds)]
    told = client.send_each(topic, rounds, idempotent=idempotent)
    return list(zip(chain(*rounds), chain(*told), strict=True))


def _acknowledged(sent: Sequence[tuple[Message, Sent]]) -> list[tuple[int, bytes]]:
    """As `_log`, what the client says is there."""
    stored = [(told.offset, message.value or b"") for message, told in sent if told.code == STORED]
    return sorted((offset, value.rstrip(b".")) for offset, value in stored)


@pytest.mark.case(AREA, "a refused batch among several in flight, idempotent: {idempotent}")
@pytest.mark.parametrize("idempotent", [True, False])
def test_refused_in_flight(client: Client, topic: str, raw: RawConnection, idempotent: bool) -> None:
    client.needs("headers of each", *(["idempotence"] if idempotent else []))
    good = _writes(b"good 0", "a")
    behind = [_writes(b"bad", "a"), _writes(b"good 1", "b"), _writes(b"good 2", "c")]
    sent = _told(client, topic, [[good], behind, [_writes(b"good 3", "d")]], idempotent)
    (_, first), (_, bad), *following = sent
    assert (first.code, bad.code) == (STORED, POLICY_VIOLATION)
    assert bad.name == ERRORS[client.name][0]
    assert ("LOCKSTEP_REFUSED reason=LOCK record=0" in bad.text) == (client.name in HEARS_WHY)
    wanted = NO_MORE.get((client.name, idempotent), (STORED, STORED, STORED))
    assert tuple(each.code for _, each in following) == wanted
    assert _log(raw, topic) == _acknowledged(sent), "nothing else is there, and nothing twice"

    sent += _told(client, topic, [[_writes(b"last", "e")]], idempotent)
    assert sent[-1][1].code == STORED, "a new producer is as good as any"
    assert _log(raw, topic) == _acknowledged(sent)


@pytest.mark.case(AREA, "the first batch of an idempotent producer is refused, with others in flight")
def test_first_refused(client: Client, topic: str, raw: RawConnection) -> None:
    client.needs("headers of each", "idempotence")
    sent = _told(client, topic, [[_writes(b"good 0", "a")]], True)
    behind = [_writes(b"bad", "a"), _writes(b"good 1", "b"), _writes(b"good 2", "c")]
    sent += _told(client, topic, [behind, [_writes(b"good 3", "d")]], True)
    wanted = NO_MORE.get((client.name, True), (STORED, STORED, STORED))
    assert tuple(each.code for _, each in sent) == (STORED, POLICY_VIOLATION, *wanted)
    assert _log(raw, topic) == _acknowledged(sent)


@pytest.mark.case(AREA, "an expected offset that is, one that is to come, one that was")
def test_expected_offset(client: Client, topic: str, raw: RawConnection) -> None:
    client.needs("headers of each")
    messages = [_message(b"%d" % n, expected_offset=str(n)) for n in (0, 5, 0, 1)]
    told = [each for _, each in _told(client, topic, [[each] for each in messages], False)]
    late, never = ERRORS[client.name]
    unknown = UNKNOWN if client.name == AioKafka.name else INVALID_RECORD  # not in its table
    assert [(each.code, each.name) for each in told] == [
        (STORED, ""),
        (unknown, never),
        (POLICY_VIOLATION, late),
        (STORED, ""),
    ]
    assert _log(raw, topic) == [(0, b"0"), (1, b"1")]


@pytest.mark.case(AREA, "locks in a transaction are refused; aborted, the transactional id goes on")
def test_transaction(client: Client, topic: str, raw: RawConnection, unused_name: Callable[[], str]) -> None:
    client.needs("transactions")
    transactional_id = f"tx-{unused_name()}"
    with contextlib.closing(client.transactional(transactional_id)) as producer:
        producer.begin()
        with pytest.raises(Refused) as refused:
            producer.send(topic, [_writes(b"locked", "a")])
            producer.commit()
        assert refused.value.code == (UNKNOWN if client.name == AioKafka.name else INVALID_RECORD)
        producer.abort()
        for value in (b"plain", b"again"):
            producer.begin()
            producer.send(topic, [_message(value)])
            producer.commit()
    found = client.read(topic, 2, isolation="read_committed")
    assert [(each.value or b"").rstrip(b".") for each in found] == [b"plain", b"again"]
    assert [value for _, value in _log(raw, topic) if value.isalpha()] == [b"plain", b"again"]


# -- as somebody who tries it -------------------------------------------------------------------------------


@pytest.fixture
def alone(target: Target) -> Iterator[Target]:
    """One that may be killed."""
    with type(target)() as running:
        yield running


def _kcat(alone: Target, value: str, *headers: str) -> tuple[int, str]:
    program = shutil.which("kcat") or shutil.which("kafkacat")
    if program is None:
        skip_or_fail("kcat not found: install the package kcat")
    words = [word for each in headers for word in ("-H", each)]
    command = [str(program), "-b", alone.bootstrap, "-P", "-t", "t", *words]
    done = subprocess.run(command, input=value, capture_output=True, text=True, timeout=30, check=False)
    return done.returncode, done.stderr.strip()


@pytest.mark.case(AREA, "kcat -H: the same lock a second time is refused, after kill -9 too")
@pytest.mark.parametrize("client", [Kcat.name])
def test_kcat(alone: Target, client: str) -> None:
    with raw_connection(alone.bootstrap) as raw:
        raw.create_topic("t", configs=LOCKED)
    seat = ("lockstep-hwm=-1", "lockstep-write-lock=seat/12A")
    taken = (1, "% Delivery failed for message: Broker: Policy violation")
    assert _kcat(alone, "alice", *seat) == (0, "")
    assert _kcat(alone, "bob", *seat) == taken
    alone.kill9()
    alone.restart()
    assert _kcat(alone, "carol", *seat) == taken
    assert _kcat(alone, "carol", "lockstep-hwm=0", "lockstep-write-lock=seat/12A") == (0, "")
    assert _kcat(alone, "dave", "lockstep-expected-offset=1") == taken
    assert _kcat(alone, "dave", "lockstep-expected-offset=2") == (0, "")
    with raw_connection(alone.bootstrap) as raw:
        assert _log(raw, "t") == [(0, b"alice"), (1, b"carol"), (2, b"dave")]


@pytest.mark.case(AREA, "kcat: many lines of one lock, a batch each: the first is stored")
@pytest.mark.parametrize("client", [Kcat.name])
@pytest.mark.parametrize("idempotent", [True, False])
def test_kcat_lines(
    world: World, target: Target, topic: str, raw: RawConnection, client: str, idempotent: bool
) -> None:
    lines = [_writes(b"%d" % n, "a") for n in range(5)]
    with pytest.raises(Refused) as refused:
        world.client(client, target.name).produce(topic, lines, idempotent=idempotent, batch_bytes=1000)
    assert refused.value.code == POLICY_VIOLATION
    assert _log(raw, topic) == [(0, b"0")]


@pytest.mark.case("Kafka's tools", "kafka-console-producer with lock headers: a second time it is refused")
def test_console_producer(tool: Callable[..., ToolResult], topic: str, raw: RawConnection) -> None:
    how = ("--sync", "--topic", topic, "--reader-property", "parse.headers=true")
    seat = "lockstep-hwm:-1,lockstep-write-lock:seat/12A"
    first, second = (
        tool("org.apache.kafka.tools.ConsoleProducer", *how, stdin=f"{seat}\t{name}\n".encode())
        for name in ("alice", "bob")
    )
    assert (first.status, first.stderr, second.status) == (0, "", 1)
    assert "PolicyViolationException: LOCKSTEP_REFUSED reason=LOCK" in second.stderr
    assert "lock=seat%2F12A mode=W hwm=-1 conflict_offset=0 exact" in second.stderr
    assert _log(raw, topic) == [(0, b"alice")]
