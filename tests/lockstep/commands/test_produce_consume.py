"""`lockstep produce` and `lockstep consume`, with each other and with another client."""

from __future__ import annotations

import json
from typing import Any

import confluent_kafka
import pytest
from kafka import KafkaConsumer, KafkaProducer

from lockstep.commands import options
from lockstep.kafka_client import followed_topic
from lockstep.kafka_client.client import Client
from lockstep.kafka_client.connection import BrokerError, ConnectionFailed, Unsupported
from lockstep.protocol.errors import ErrorCode
from lockstep.testing import RunningBroker
from tests.lockstep.conftest import Run


def consumed(command: Run, topic: str, *arguments: str) -> list[dict[str, Any]]:
    outcome = command("consume", topic, "--from-beginning", "--json", *arguments)
    assert outcome.status == 0, outcome.err
    return [json.loads(line) for line in outcome.out.splitlines()]


def test_lines_become_records(command: Run, topic: str) -> None:
    assert command("produce", topic, stdin=b"one\n\ntwo\r\nlast without an end") == (0, "", "")
    assert command("consume", topic, "--from-beginning").out == "one\n\ntwo\nlast without an end\n"
    assert command("consume", topic, "--from-beginning", "-n", "2").out == "one\n\n"
    assert command("consume", topic, "--from-beginning", "-n", "0").out == ""


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_codec(command: Run, topic: str, running: RunningBroker, codec: str) -> None:
    lines = b"".join(b"line number %d\n" % number for number in range(30_000))
    outcome = command("produce", topic, "--codec", codec, "--json", stdin=lines)
    assert json.loads(outcome.out) == {
        "topic": topic,
        "records": 30_000,
        "partitions": [{"partition": 0, "records": 30_000, "next_offset": 30_000}],
    }
    assert command("consume", topic, "--from-beginning").out.encode() == lines


def test_keys_headers_and_nulls(command: Run, topic: str) -> None:
    command(
        "produce", topic, "-K", "\\t", "--null", "NIL", "-H", "a=1", "-H", "a=", stdin=b"k\tv\nNIL\tNIL\n\t\n"
    )
    found = consumed(command, topic)
    assert [(record["key"], record["value"]) for record in found] == [("k", "v"), (None, None), ("", "")]
    assert found[0]["headers"] == [{"name": "a", "value": "1"}, {"name": "a", "value": ""}]
    assert [record["offset"] for record in found] == [0, 1, 2]
    assert command("consume", topic, "--from-beginning", "-K", "=").out == "k=v\nnull=null\n=\n"
    verbose = command("consume", topic, "--from-beginning", "-v", "-n", "1").out
    assert verbose.startswith("0/0  20") and verbose.endswith("  k  v  a=1  a=\n")


def test_locks_that_nobody_checks_are_warned_of(command: Run, topic: str) -> None:
    lock = ("-H", "lockstep-hwm=-1", "-H", "lockstep-write-lock=seat")
    outcome = command("produce", topic, *lock, stdin=b"a\nb\n")
    assert (outcome.status, outcome.out) == (0, "")
    assert outcome.err == (
        f"lockstep: topic {topic} has no locks, so that nothing checks the headers lockstep-hwm, "
        "lockstep-write-lock and every record is appended; to have them checked: "
        f"lockstep configs alter topic {topic} lockstep.locks=true (docs/locks.md)\n"
    )
    assert command("produce", topic, "-H", "a=lockstep-hwm", stdin=b"c\n").err == ""
    (enable,) = [part for part in outcome.err.split(": ") if part.startswith("lockstep configs")]
    words = enable.partition(" (")[0].split()[1:]
    assert command(*words).status == 0
    assert command("produce", topic, "-H", "lockstep-hwm=2", *lock[2:], stdin=b"d\n").err == ""
    again = command("produce", topic, "-H", "lockstep-hwm=2", *lock[2:], stdin=b"d\n")
    assert again.status == 1 and "reason=LOCK" in again.err


def test_bytes_that_are_not_text(command: Run, topic: str) -> None:
    command("produce", topic, stdin=b"\xff\xfe\n")
    (record,) = consumed(command, topic)
    assert "value" not in record and record["value_base64"] == "//4="


def test_keys_go_where_another_client_sends_them(command: Run, topic: str, running: RunningBroker) -> None:
    command("topics", "create", topic, "-p", "5")
    keys = [f"key-{number}" for number in range(200)]
    command("produce", topic, "-K:", stdin="".join(f"{key}:ours\n" for key in keys).encode())
    producer = KafkaProducer(bootstrap_servers=running.bootstrap_servers)
    for key in keys:
        producer.send(topic, key=key.encode(), value=b"theirs")
    producer.close()
    found = consumed(command, topic)
    places = {(record["key"], record["partition"]) for record in found}
    assert len(found) == 400 and len(places) == 200


def test_another_client_reads_what_we_write(command: Run, topic: str, running: RunningBroker) -> None:
    command("produce", topic, "-K:", "-z", "lz4", "-H", "h=v", stdin=b"a:1\nb:2\n")
    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=running.bootstrap_servers,
        group_id=None,
        auto_offset_reset="earliest",
        consumer_timeout_ms=5000,
    )
    found = [next(consumer) for _ in range(2)]
    consumer.close()
    assert [(record.key, record.value, list(record.headers)) for record in found] == [
        (b"a", b"1", [("h", b"v")]),
        (b"b", b"2", [("h", b"v")]),
    ]


def test_records_without_a_key_take_turns(command: Run, topic: str) -> None:
    command("topics", "create", topic, "-p", "3")
    for number in range(3):
        command("produce", topic, "-p", str(number), stdin=b"x\n" * (number + 1))
    found = consumed(command, topic)
    assert [sum(record["partition"] == number for record in found) for number in range(3)] == [1, 2, 3]
    assert len(consumed(command, topic, "-p", "1", "-p", "2")) == 5


def test_offsets_from_either_end(command: Run, topic: str) -> None:
    command("produce", topic, stdin=b"0\n1\n2\n3\n")
    assert command("consume", topic, "--offset", "3").out == "3\n"
    assert command("consume", topic, "-o", "-2").out == "2\n3\n"
    assert command("consume", topic, "-o", "-100").out == "0\n1\n2\n3\n"
    assert command("consume", topic, "-o", "4").out == ""
    beyond = command("consume", topic, "-o", "5")
    assert beyond.status == 1 and "ends at offset 4" in beyond.err


def test_offsets_by_the_names_other_tools_use(command: Run, topic: str) -> None:
    command("produce", topic, stdin=b"0\n1\n")
    assert command("consume", topic, "-o", "earliest").out == "0\n1\n"
    assert command("consume", topic, "--offset", "latest", "-n", "0") == (0, "", "")
    wrong = command("consume", topic, "-o", "middle")
    assert wrong.status == 2 and "'middle' is neither a number nor earliest or latest" in wrong.err


def test_committed_records_alone(command: Run, topic: str, running: RunningBroker) -> None:
    command("topics", "create", topic)
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": running.bootstrap_servers, "transactional.id": f"of-{topic}"}
    )
    producer.init_transactions(30)
    for value, end in (
        (b"one", producer.commit_transaction),
        (b"lost", producer.abort_transaction),
        (b"two", producer.commit_transaction),
    ):
        producer.begin_transaction()
        producer.produce(topic, value)
        producer.flush(30)
        end(30)
    producer.begin_transaction()
    producer.produce(topic, b"open")
    producer.flush(30)
    assert command("consume", topic, "--from-beginning").out == "one\nlost\ntwo\nopen\n"
    assert command("consume", topic, "--from-beginning", "--committed").out == "one\ntwo\n"
    assert command("consume", topic, "-o", "2", "--committed").out == "two\n", "from what was aborted"
    assert command("consume", topic, "-o", "-2", "--committed").out == "two\n", "before the open one"
    producer.commit_transaction(30)
    assert command("consume", topic, "--from-beginning", "--committed").out == "one\ntwo\nopen\n"


def test_the_bootstrap_option_under_kafkas_name(command: Run, topic: str, running: RunningBroker) -> None:
    address = running.bootstrap_servers
    command("produce", topic, stdin=b"x\n")
    assert command("consume", topic, "-o", "earliest", "--bootstrap-server", address).out == "x\n"
    wrong = command("topics", "--bootstrap-server", "nonsense:port", "list")
    assert wrong.status == 1 and "not an address" in wrong.err


def test_several_records_of_a_fetch_that_began_in_the_middle_of_a_batch(command: Run, topic: str) -> None:
    command("produce", topic, stdin=b"".join(b"%d\n" % number for number in range(1000)))
    assert command("consume", topic, "-o", "990", "-n", "3").out == "990\n991\n992\n"


def test_impossible_requests_are_reported(command: Run, topic: str) -> None:
    command("produce", topic, stdin=b"x\n")
    for arguments, said in [
        (("produce", topic, "-p", "9"), "has partitions 0 to 0 only"),
        (("consume", topic, "--from-beginning", "-p", "9"), "has partitions 0 to 0 only"),
        (("produce", topic, "-K", ":"), "no ':' in the line"),
        (("consume", topic + "x", "--from-beginning"), "there is no such topic"),
        (("consume", topic, "--from-beginning", "-b", "nonsense:port"), "not an address"),
        (("produce", topic, "-b", "nonsense:port"), "not an address"),
    ]:
        outcome = command(*arguments, stdin=b"line\n")
        assert outcome.status == 1 and said in outcome.err, outcome
        assert outcome.err.count("\n") == 1


def test_a_record_over_the_limit_names_it(command: Run, topic: str) -> None:
    outcome = command("produce", topic, stdin=b"fine\n" + b"x" * 1_100_000 + b"\n")
    assert outcome.status == 1
    assert "MESSAGE_TOO_LARGE" in outcome.err
    assert outcome.err.endswith("; 1 records were acknowledged; nothing else was appended\n")


def test_after_a_refusal_nothing_is_in_doubt(command: Run, topic: str) -> None:
    """A refusal of the leader is of the whole batch; a line that cannot be read is not sent."""
    command("topics", "create", topic, "-p", "2", "-c", "max.message.bytes=200")
    large = command("produce", topic, "-p", "0", stdin=b"x" * 300 + b"\n")
    assert "MESSAGE_TOO_LARGE" in large.err and large.err.endswith("; nothing was appended\n"), large
    unread = command("produce", topic, "-K:", stdin=b"a:1\nb\n")
    assert unread.err.endswith("in the line b'b'; nothing was appended\n"), unread
    keys = b"".join(b"%d:v\n" % number for number in range(9))
    both = command("produce", topic, "-K:", stdin=keys + b"large:" + b"x" * 300 + b"\n")
    count = len(consumed(command, topic))
    assert 0 < count < 10
    ends = (
        f"; {count} records were acknowledged, which need not be the first ones; nothing else was appended\n"
    )
    assert "MESSAGE_TOO_LARGE" in both.err and both.err.endswith(ends), both


@pytest.mark.parametrize("is_first", [True, False])
def test_a_refusal_of_a_later_try_leaves_the_earlier_one_in_doubt(
    command: Run, topic: str, monkeypatch: pytest.MonkeyPatch, is_first: bool
) -> None:
    command("topics", "create", topic)
    real, sent = Client.produce, 0

    async def produce(*words: Any, **more: Any) -> int:
        nonlocal sent
        sent += 1
        if sent == 1 and not is_first:
            await real(*words, **more)
            raise ConnectionFailed("the answer is lost")
        raise BrokerError(ErrorCode.POLICY_VIOLATION, topic, "LOCKSTEP_REFUSED")

    monkeypatch.setattr(Client, "produce", produce)
    outcome = command("produce", topic, stdin=b"a\n")
    assert (outcome.status, len(consumed(command, topic))) == (1, 0 if is_first else 1)
    doubt = "; 0 records were acknowledged; of those that failed some may be there as well\n"
    assert outcome.err.endswith(
        "LOCKSTEP_REFUSED (POLICY_VIOLATION); nothing was appended\n" if is_first else doubt
    ), outcome


def test_acks_0_sends_and_leaves(command: Run, topic: str) -> None:
    command("topics", "create", topic)
    assert command("produce", topic, "--acks", "0", stdin=b"a\n").status == 0
    for _ in range(50):
        if consumed(command, topic):
            break
    assert [record["value"] for record in consumed(command, topic)] == ["a"]


@pytest.mark.parametrize(("acks", "numbered"), [("all", True), ("1", True), ("all", False)])
def test_a_batch_whose_answer_is_lost_is_there_once(
    command: Run, topic: str, monkeypatch: pytest.MonkeyPatch, acks: str, numbered: bool
) -> None:
    command("topics", "create", topic)
    real, sent = Client.produce, 0

    async def produce(*words: Any, **more: Any) -> int:
        nonlocal sent
        sent += 1
        offset = await real(*words, **more)
        if sent == 1:
            raise ConnectionFailed("the answer is lost")
        return offset

    async def no_number(client: Client) -> tuple[int, int]:
        raise Unsupported("InitProducerId")

    monkeypatch.setattr(Client, "produce", produce)
    if not numbered:
        monkeypatch.setattr(Client, "producer_id", no_number)
    outcome = command("produce", topic, "--acks", acks, "--json", stdin=b"a\nb\n")
    assert [record["value"] for record in consumed(command, topic)] == ["a", "b"]
    if numbered:
        assert (outcome.status, outcome.err, sent) == (0, "", 2)
        assert json.loads(outcome.out)["partitions"] == [{"partition": 0, "records": 2, "next_offset": 2}]
    else:  # nothing says whether it arrived
        assert (outcome.status, sent) == (1, 1)
        doubt = "0 records were acknowledged; of those that failed some may be there as well"
        assert f"the answer is lost; {doubt}" in outcome.err
        assert json.loads(outcome.out)["partitions"] == []


@pytest.mark.parametrize("asked", ["produce", "fetch"])
def test_unresponsive_brokers_are_reported_once(
    command: Run, topic: str, monkeypatch: pytest.MonkeyPatch, asked: str
) -> None:
    command("produce", topic, stdin=b"a\n")
    real, tried = getattr(Client, asked), 0

    async def silent_at_first(*words: Any, **more: Any) -> Any:
        nonlocal tried
        tried += 1
        if tried < 4:
            raise ConnectionFailed("nobody is there")
        return await real(*words, **more)

    monkeypatch.setattr(Client, asked, silent_at_first)
    monkeypatch.setattr(followed_topic, "SILENT_AFTER_S", 0.0)
    monkeypatch.setattr(options, "POLL_INTERVAL_SECONDS", 0.01)
    if asked == "produce":
        outcome = command("produce", topic, stdin=b"b\n")
    else:
        outcome = command("consume", topic, "--from-beginning")
        assert outcome.out == "a\n"
    assert outcome.status == 0
    assert outcome.err == "lockstep: no success for 0 s: nobody is there; still trying\n"


def test_batches_keep_to_the_topics_limit(command: Run, topic: str) -> None:
    command("topics", "create", topic, "-c", "max.message.bytes=2000")
    lines = b"".join(b"%d" % number * 10 + b"\n" for number in range(2000))
    assert command("produce", topic, stdin=lines) == (0, "", "")
    assert command("consume", topic, "--from-beginning").out.encode() == lines
