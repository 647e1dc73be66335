"""The transaction coordinator by hand: every version and every refusal. Expected is what Kafka 4.4.0 does.

Whoever is told CONCURRENT_TRANSACTIONS asks again, as clients do: Kafka says it where Lockstep lets wait.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from compat_tests.conftest import NewTopic
from compat_tests.raw import Answer, RawConnection
from compat_tests.targets import Target
from lockstep.protocol.compiler import decode
from lockstep.protocol.messages.describe_transactions import DescribeTransactionsResponse, TransactionState

UNKNOWN_TOPIC_OR_PARTITION = 3
TOPIC_AUTHORIZATION_FAILED = 29
INVALID_REQUEST = 42
INVALID_PRODUCER_EPOCH = 47
INVALID_TXN_STATE = 48
INVALID_PRODUCER_ID_MAPPING = 49
INVALID_TRANSACTION_TIMEOUT = 50
OPERATION_NOT_ATTEMPTED = 55
PRODUCER_FENCED = 90
TRANSACTIONAL_ID_NOT_FOUND = 105
TRANSACTION_ABORTABLE = 120
INVALID_REGULAR_EXPRESSION = 128

TRANSACTION = 1
BUSY = frozenset({14, 15, 16, 51})
"""Loading, no coordinator yet, not this one, busy: asked again."""

UnusedName = Callable[[], str]
Identity = tuple[int, int]


class Coordinator:
    """Requests for one transactional id over one connection."""

    def __init__(self, raw: RawConnection, name: str) -> None:
        self.raw = raw
        self.name = name
        self._again(
            lambda: raw.call("find_coordinator", 3, key=name, key_type=TRANSACTION),
            lambda answer: answer["error_code"],
        )

    @staticmethod
    def _again(ask: Callable[[], Answer], error: Callable[[Answer], int]) -> Answer:
        for _ in range(200):
            answer = ask()
            if error(answer) not in BUSY:
                break
            time.sleep(0.02)
        return answer

    def init(
        self,
        expected: Identity = (-1, -1),
        *,
        version: int = 4,
        timeout_ms: int = 60_000,
        name: str | None = None,
    ) -> tuple[int, int, int]:
        """Error, producer id, epoch."""
        answer = self._again(
            lambda: self.raw.call(
                "init_producer_id",
                version,
                transactional_id=self.name if name is None else name,
                transaction_timeout=timeout_ms,
                producer_id=expected[0],
                producer_epoch=expected[1],
            ),
            lambda answer: answer["error_code"],
        )
        return answer["error_code"], answer["producer_id"], answer["producer_epoch"]

    def begin(self, **more: Any) -> Identity:
        error, *identity = self.init(**more)
        assert error == 0
        return identity[0], identity[1]

    def add(
        self, identity: Identity, *places: tuple[str, int], version: int = 3, name: str | None = None
    ) -> list[int]:
        """Errors in the order of the partitions."""
        topics = [{"name": topic, "partitions": [index]} for topic, index in places]
        answer = self._again(
            lambda: self.raw.call(
                "add_partitions_to_txn",
                version,
                v3_and_below_transactional_id=self.name if name is None else name,
                v3_and_below_producer_id=identity[0],
                v3_and_below_producer_epoch=identity[1],
                v3_and_below_topics=topics,
            ),
            lambda answer: next(iter(_codes(answer["results_by_topic_v3_and_below"]).values()), 0),
        )
        found = _codes(answer["results_by_topic_v3_and_below"])
        return [found[place] for place in places]

    def batched(
        self, identity: Identity, *places: tuple[str, int], verify: bool = False, version: int = 4
    ) -> list[int]:
        """The same as brokers ask."""
        topics = [{"name": topic, "partitions": [index]} for topic, index in places]
        wanted = {
            "transactional_id": self.name,
            "producer_id": identity[0],
            "producer_epoch": identity[1],
            "verify_only": verify,
            "topics": topics,
        }
        answer = self._again(
            lambda: self.raw.call("add_partitions_to_txn", version, transactions=[wanted]),
            lambda answer: next(
                iter(_codes(answer["results_by_transaction"][0]["topic_results"]).values()), 0
            ),
        )
        assert answer["error_code"] == 0
        found = _codes(answer["results_by_transaction"][0]["topic_results"])
        return [found[place] for place in places]

    def end(
        self, identity: Identity, commit: bool, *, version: int = 3, name: str | None = None
    ) -> tuple[int, Identity]:
        """Error, and the identity that version 5 tells."""
        answer = self._again(
            lambda: self.raw.call(
                "end_txn",
                version,
                transactional_id=self.name if name is None else name,
                producer_id=identity[0],
                producer_epoch=identity[1],
                committed=commit,
            ),
            lambda answer: answer["error_code"],
        )
        return answer["error_code"], (answer.get("producer_id", -1), answer.get("producer_epoch", -1))

    def over(self, identity: Identity, commit: bool, *, version: int = 3) -> None:
        """End it and wait until every partition knows."""
        assert self.end(identity, commit, version=version)[0] == 0
        for _ in range(200):
            if self.describe().transaction_state.startswith("Complete"):
                return
            time.sleep(0.02)
        raise AssertionError(self.describe())

    def describe(self, name: str | None = None) -> TransactionState:
        """kio cannot read the start of a transaction that there is not."""
        self.raw.send(
            "describe_transactions",
            0,
            answered=False,
            transactional_ids=[self.name if name is None else name],
        )
        frame = self.raw.receive_frame()
        (found,) = decode(DescribeTransactionsResponse, 0, memoryview(frame), 5).transaction_states
        return found


def _codes(topics: list[Answer]) -> dict[tuple[str, int], int]:
    return {
        (topic["name"], each["partition_index"]): each["partition_error_code"]
        for topic in topics
        for each in topic["results_by_partition"]
    }


@pytest.fixture
def one(raw: RawConnection, unused_name: UnusedName) -> Coordinator:
    return Coordinator(raw, unused_name())


@pytest.mark.parametrize("version", range(6))
def test_init_begins_with_epoch_0_and_raises_it(one: Coordinator, version: int) -> None:
    producer_id, epoch = one.begin(version=version)
    assert epoch == 0
    assert one.begin(version=version) == (producer_id, 1)


@pytest.mark.parametrize("version", range(6))
@pytest.mark.parametrize("commit", [True, False])
def test_end_in_every_version_twice(
    one: Coordinator, target: Target, new_topic: NewTopic, version: int, commit: bool
) -> None:
    topic = new_topic(partitions=2)
    producer_id, epoch = one.begin()
    assert one.add((producer_id, epoch), (topic, 0), (topic, 1), version=min(version, 3)) == [0, 0]
    one.over((producer_id, epoch), commit, version=version)
    told = (producer_id, epoch + 1) if version >= 5 else (-1, -1)
    assert one.end((producer_id, epoch), commit, version=version) == (0, told)
    # After an abort it can only be a commit that the broker's own abort was faster than (KAFKA-20785).
    is_late_commit = version >= 5 and not commit and not target.name.startswith("kafka")
    refused = PRODUCER_FENCED if is_late_commit else INVALID_TXN_STATE
    assert one.end((producer_id, epoch), not commit, version=version) == (refused, (-1, -1))


def test_init_refuses_bad_requests(one: Coordinator) -> None:
    assert one.init(timeout_ms=0) == (INVALID_TRANSACTION_TIMEOUT, -1, -1)
    assert one.init(timeout_ms=900_001) == (INVALID_TRANSACTION_TIMEOUT, -1, -1)
    assert one.init(name="") == (INVALID_REQUEST, -1, -1)
    assert one.init((5, -1)) == (INVALID_REQUEST, -1, -1)
    assert one.init((-1, 5)) == (INVALID_REQUEST, -1, -1)


def test_init_of_a_producer_that_is_not_the_last(one: Coordinator) -> None:
    producer_id, epoch = one.begin()
    for stranger in ((producer_id + 1_000, epoch), (producer_id, epoch + 1)):
        assert one.init(stranger) == (PRODUCER_FENCED, -1, -1)
        assert one.init(stranger, version=3) == (INVALID_PRODUCER_EPOCH, -1, -1)
    assert one.init((producer_id, epoch)) == (0, producer_id, epoch + 1)
    assert one.init((producer_id, epoch)) == (0, producer_id, epoch + 1)  # it did not hear of it
    assert one.begin() == (producer_id, epoch + 2)
    assert one.init((producer_id, epoch)) == (PRODUCER_FENCED, -1, -1)


def test_init_aborts_what_is_under_way(one: Coordinator, new_topic: NewTopic) -> None:
    topic = new_topic()
    producer_id, epoch = one.begin()
    assert one.add((producer_id, epoch), (topic, 0)) == [0]
    successor = one.begin()
    assert successor == (producer_id, epoch + 2)
    assert one.end((producer_id, epoch), True) == (PRODUCER_FENCED, (-1, -1))
    assert one.add((producer_id, epoch), (topic, 0)) == [PRODUCER_FENCED]
    assert one.describe().transaction_state == "Empty"


def test_init_of_the_same_producer_while_its_transaction_is_under_way(
    one: Coordinator, new_topic: NewTopic
) -> None:
    topic = new_topic()
    producer_id, epoch = one.begin()
    assert one.add((producer_id, epoch), (topic, 0)) == [0]
    assert one.init((producer_id, epoch)) == (0, producer_id, epoch + 1)


@pytest.mark.parametrize("version", range(4))
def test_add_refuses(one: Coordinator, new_topic: NewTopic, version: int) -> None:
    topic = new_topic()
    producer_id, epoch = one.begin()
    place = topic, 0
    fenced = PRODUCER_FENCED if version >= 2 else INVALID_PRODUCER_EPOCH
    assert one.add((1, 0), place, version=version, name="nobody's") == [INVALID_PRODUCER_ID_MAPPING]
    assert one.add((1, 0), place, version=version, name="") == [INVALID_REQUEST]
    assert one.add((producer_id + 1, epoch), place, version=version) == [INVALID_PRODUCER_ID_MAPPING]
    assert one.add((producer_id, epoch + 1), place, version=version) == [fenced]
    some = one.add((producer_id, epoch), place, (topic, 7), (topic + "-not", 0), version=version)
    assert some == [OPERATION_NOT_ATTEMPTED, UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_OR_PARTITION]
    for internal in ("__transaction_state", "__consumer_offsets"):
        some = one.add((producer_id, epoch), place, (internal, 0), version=version)
        assert some == [OPERATION_NOT_ATTEMPTED, TOPIC_AUTHORIZATION_FAILED]
    assert one.describe().transaction_state == "Empty"
    assert one.add((producer_id, epoch), version=version) == []
    assert one.describe().transaction_state == "Ongoing"


@pytest.mark.parametrize("version", [4, 5])
def test_requests_between_brokers(one: Coordinator, new_topic: NewTopic, version: int) -> None:
    topic = new_topic(partitions=2)
    identity = one.begin()
    first, second = (topic, 0), (topic, 1)
    ask = one.batched
    assert ask(identity, first, verify=True, version=version) == [TRANSACTION_ABORTABLE]
    assert ask(identity, first, version=version) == [0]
    assert ask(identity, first, second, verify=True, version=version) == [0, TRANSACTION_ABORTABLE]
    late = identity[0], identity[1] + 1
    assert ask(late, first, verify=True, version=version) == [PRODUCER_FENCED]
    assert ask((identity[0] + 1, 0), first, version=version) == [INVALID_PRODUCER_ID_MAPPING]
    assert ask(identity, (topic, 9), first, version=version) == [
        UNKNOWN_TOPIC_OR_PARTITION,
        OPERATION_NOT_ATTEMPTED,
    ]


@pytest.mark.parametrize("version", range(6))
def test_end_refuses(one: Coordinator, version: int) -> None:
    producer_id, epoch = one.begin()
    nobody = -1, -1
    fenced = PRODUCER_FENCED if version >= 2 else INVALID_PRODUCER_EPOCH
    stranger = one.end((1, 0), True, version=version, name="nobody's")
    assert stranger == (INVALID_PRODUCER_ID_MAPPING, nobody)
    assert one.end((1, 0), True, version=version, name="") == (INVALID_REQUEST, nobody)
    other = one.end((producer_id + 1, epoch), True, version=version)
    assert other == (INVALID_PRODUCER_ID_MAPPING, nobody)
    assert one.end((producer_id, epoch + 1), True, version=version) == (fenced, nobody)
    assert one.end((producer_id, epoch), True, version=version) == (INVALID_TXN_STATE, nobody)
    empty = one.end((producer_id, epoch), False, version=version)
    if version < 5:
        assert empty == (INVALID_TXN_STATE, nobody)
    else:  # it cannot know whether a partition takes part
        assert empty == (0, (producer_id, epoch + 1))


def test_the_second_version_of_transactions(one: Coordinator, new_topic: NewTopic) -> None:
    topic = new_topic()
    producer_id, epoch = one.begin()
    assert one.batched((producer_id, epoch), (topic, 0), version=5) == [0]
    one.over((producer_id, epoch), True, version=5)
    assert one.batched((producer_id, epoch), (topic, 0), version=5) == [PRODUCER_FENCED]
    assert one.batched((producer_id, epoch + 1), (topic, 0), version=5) == [0]
    assert one.end((producer_id, epoch), True, version=5) == (PRODUCER_FENCED, (-1, -1))
    one.over((producer_id, epoch + 1), False, version=5)
    told = one.end((producer_id, epoch + 2), True, version=5)
    assert told == (INVALID_TXN_STATE, (-1, -1))
    assert one.init((producer_id, epoch + 1)) == (0, producer_id, epoch + 2)  # the end it did not hear of


def test_describe(one: Coordinator, new_topic: NewTopic) -> None:
    topic, other = new_topic(partitions=2), new_topic()
    producer_id, epoch = one.begin(timeout_ms=12_345)
    found = one.describe()
    assert (
        found.transaction_state,
        found.transaction_timeout_ms,
        found.producer_id,
        found.producer_epoch,
    ) == (
        "Empty",
        12_345,
        producer_id,
        epoch,
    )
    assert (found.transaction_start_time_ms, found.topics) == (-1, [])
    began_ms = time.time() * 1000
    assert one.add((producer_id, epoch), (topic, 1), (other, 0)) == [0, 0]
    found = one.describe()
    assert found.transaction_state == "Ongoing"
    assert {each.topic: each.partitions for each in found.topics} == {topic: [1], other: [0]}
    assert began_ms - 1 <= found.transaction_start_time_ms <= time.time() * 1000
    one.over((producer_id, epoch), False)
    assert (one.describe().transaction_state, one.describe().topics) == ("CompleteAbort", [])
    assert one.describe("nobody's").error_code == TRANSACTIONAL_ID_NOT_FOUND
    assert one.describe("").error_code == INVALID_REQUEST


def test_list(one: Coordinator, new_topic: NewTopic) -> None:
    producer_id, epoch = one.begin()
    topic = new_topic()

    def listed(**filters: Any) -> list[str]:
        """The states that this id is listed with."""
        wanted = {"state_filters": [], "producer_id_filters": [], "duration_filter": -1}
        answer = one.raw.call(
            "list_transactions", 2, **{**wanted, "transactional_id_pattern": None, **filters}
        )
        assert answer["error_code"] == 0
        return [
            each["transaction_state"]
            for each in answer["transaction_states"]
            if each["transactional_id"] == one.name and each["producer_id"] == producer_id
        ]

    assert listed() == listed(state_filters=["Empty", "Bogus"]) == ["Empty"]
    assert one.add((producer_id, epoch), (topic, 0)) == [0]
    time.sleep(0.01)
    for filters in (
        {"state_filters": ["Ongoing"]},
        {"producer_id_filters": [-1, producer_id]},
        {"duration_filter": 0},
        {"duration_filter": -5},
        {"transactional_id_pattern": ""},
        {"transactional_id_pattern": one.name[:-1] + "."},
        {"transactional_id_pattern": f"nobody|(?i:{one.name.upper()})"},
    ):
        assert listed(**filters) == ["Ongoing"], filters
    for filters in (
        {"state_filters": ["Empty"]},
        {"state_filters": ["Bogus"]},
        {"state_filters": ["ongoing"]},
        {"producer_id_filters": [-1]},
        {"duration_filter": 60_000},
        {"transactional_id_pattern": one.name[:-1]},
        {"transactional_id_pattern": one.name[1:]},
    ):
        assert listed(**filters) == [], filters


@pytest.mark.parametrize("pattern", ["(", "[a", "a**", "*a", "(?=a)", r"(a)\1", "a{2,1}", "a{1001}"])
def test_patterns_that_are_none(one: Coordinator, pattern: str) -> None:
    answer = one.raw.call("list_transactions", 2, transactional_id_pattern=pattern)
    assert answer["error_code"] == INVALID_REGULAR_EXPRESSION
