"""What counts as the same answer of Spark, and which of its cases a run has; no Spark is started."""

from __future__ import annotations

import pytest

from compat_tests import harness
from compat_tests.harness import FAILED, PASSED, Outcome
from compat_tests.spark_cases.__main__ import counts
from compat_tests.spark_cases.transcript import Transcript, compare, kinds
from conftest import share_of


def answered(*rows: object) -> Transcript:
    made = Transcript()
    for each in rows:
        made.add("read", each)
    return made


def test_topics_are_compared_by_age() -> None:
    compare("by age", "kafka", answered({"case-7-00009": 1, "case-7-00010": "case-7-00010-a"}))
    compare("by age", "lockstep", answered({"case-8-00021": 1, "case-8-00022": "case-8-00022-a"}))
    with pytest.raises(AssertionError, match="differs from Apache Kafka"):
        compare("by age", "lockstep", answered({"case-8-00022": 1, "case-8-00021": "case-8-00021-a"}))


@pytest.mark.parametrize("other", [[{"offset": 1}], [{"offset": 0}, {"offset": 1}], []])
def test_another_answer_is_seen(other: list[object]) -> None:
    compare("other", "kafka", answered({"offset": 0}))
    with pytest.raises(AssertionError):
        compare("other", "lockstep-3", answered(*other))


def test_requests_that_kafka_did_not_get_are_not_compared() -> None:
    compare("never asked", "lockstep", answered({"offset": 0}))


def test_kinds_of_errors() -> None:
    lost = "[KAFKA_DATA_LOSS.PARTITIONS_DELETED] Partitions Set(case-1-00001-0) have been deleted."
    assert kinds([("a.KafkaException", lost)]) == [["a.KafkaException", "KAFKA_DATA_LOSS.PARTITIONS_DELETED"]]
    first = kinds(
        [("b.Failed", "Task 3 in stage 12.0 failed 1 times (TID 17) (10.0.0.1 executor 1)\nat a.b")]
    )
    again = kinds([("b.Failed", "Task 0 in stage 4.0 failed 1 times (TID 2) (10.9.0.1 executor 2)\nat c.d")])
    assert first == again
    assert kinds([("b.Failed", "Task 0 in stage 4.0 was lost")]) != first
    of_broker = "org.apache.kafka.common.errors.RecordTooLargeException"
    words = ("9072 bytes; the limit is 5000", "The request included a message larger than allowed")
    told = [kinds([("b.Failed", f"lost: {of_broker}: {each}"), (of_broker, each)]) for each in words]
    assert told[0] == told[1] == [["b.Failed", f"lost: {of_broker}"], [of_broker, ""]]


def test_which_cases_a_run_has(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LOCKSTEP_SPARK_CASES", "LOCKSTEP_COMPAT_TARGETS"):
        monkeypatch.delenv(name, raising=False)
    left_out = harness.is_left_out_of_spark
    assert not left_out("kafka", "4.2.0", ())
    assert left_out("kafka", "4.0.0", ()) and not left_out("kafka", "4.0.0", {"both"})
    assert left_out("lockstep-3", "4.2.0", ()) and not left_out("lockstep-3", "4.2.0", {"three"})
    assert left_out("lockstep-3", "4.0.0", {"both", "three"}), "three nodes are enough for one version"
    assert left_out("kafka", "4.2.0", {"whole"})
    monkeypatch.setenv("LOCKSTEP_SPARK_CASES", "whole")
    assert not left_out("lockstep-3", "4.0.0", {"whole"})
    assert left_out("kafka", "4.0.0", {"newest"}), "what the older version has not"


def test_one_session_serves_all_brokers() -> None:
    path = "compat_tests/spark_cases/test_x.py::test_y"
    shares = {share_of(f"{path}[on-{target}-spark-4.2.0]") for target in harness.TARGETS}
    assert shares == {"spark 4.2.0"}
    assert share_of(f"{path}[on-kafka-spark-4.0.0]") == "spark 4.0.0"


def test_counts_of_evidence() -> None:
    def outcome(case: str, target: str, result: str) -> Outcome:
        return Outcome("Spark", case, "Spark 4.2.0", target, result)

    found = counts(
        [
            outcome("a", "kafka", PASSED),
            outcome("a", "lockstep", PASSED),
            outcome("b", "kafka", PASSED),
            outcome("b", "lockstep", FAILED),
            outcome("c", "lockstep", PASSED),
        ]
    )
    assert found["Spark 4.2.0"]["kafka"] == {"cases": 2, "passed": 2, "failed": 0}
    expected = {"cases": 3, "passed": 2, "failed": 1, "equal to Kafka": 1}
    assert found["Spark 4.2.0"]["lockstep"] == expected
