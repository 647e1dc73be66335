"""`spark_connector.session` in JVMs of its own: what it refuses, and what executors are sent."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from compat_tests.conftest import NewTopic
from compat_tests.kafka_jars import ToolchainMissing, skip_or_fail
from compat_tests.raw import RawConnection, batch
from compat_tests.spark_driver import JARS, installed
from compat_tests.targets import LockstepTarget, Target

_AREA = "Spark connector: sessions"
_SCRIPT = Path(__file__).resolve().parent / "spark" / "sessions.py"
_TIMEOUT_S = 600
"""For one script, which starts up to three JVMs: half a minute, or minutes on busy processors."""

pytestmark = pytest.mark.timeout(_TIMEOUT_S + 60)


def _run(what: str, *arguments: str) -> dict[str, Any]:
    """The script's answer; it finds this project by its own place, and nothing else does."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [str(_python()), "-P", str(_SCRIPT), what, *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
    )
    said = [line for line in done.stderr.splitlines() if not line.startswith("\tat ")]
    assert done.returncode == 0, "\n".join(said)[-6000:]
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def _python() -> Path:
    try:
        return installed()
    except ToolchainMissing as missing:
        skip_or_fail(str(missing))
        raise


def _jars() -> str:
    return str(JARS.jars()[0].parent)


@pytest.mark.case(_AREA, "a session that runs without the connector is refused, and says so")
def test_refused() -> None:
    said = _run("refused", _jars())["said"]
    assert said.startswith("a Spark session without Spark's Kafka connector runs already: stop it")


def test_without_jars(tmp_path: Path) -> None:
    with LockstepTarget(directory=tmp_path) as broker:
        found = _run("without_jars", broker.bootstrap, "missing-topic")
    assert found["values"] == ["a", "b"]
    (said,) = found["said"]
    assert said.startswith('this session has format("lockstep") and not format("kafka")')


def test_spark_fetches_the_connector_where_kafka_is_required(tmp_path: Path) -> None:
    assert _run("resolved", str(tmp_path / "ivy")) == {"found": True}


@pytest.mark.case(_AREA, "executors in processes of their own read with what the session sends them")
def test_shipped(target: Target, raw: RawConnection, new_topic: NewTopic) -> None:
    topic = new_topic()
    raw.produce(topic, batch([b"one", b"two"]))
    assert _run("shipped", _jars(), target.bootstrap, topic) == {"values": ["one", "two"], "same": True}


@pytest.mark.case(_AREA, "a stream's reader where pyspark has no limits per trigger, as in 4.0")
def test_before_limits(target: Target, raw: RawConnection, new_topic: NewTopic) -> None:
    topic = new_topic()
    raw.produce(topic, batch([b"one", b"two"]))
    found = _run("before_limits", target.bootstrap, topic)
    assert found.pop("said").startswith("option maxOffsetsPerTrigger: needs pyspark 4.2")
    assert found == {"rows": 2, "same": True, "parameters": 0}


@pytest.mark.case(
    _AREA, "availableNow from the newest offsets: records that come while the query starts are no loss"
)
def test_target(target: Target, raw: RawConnection, new_topic: NewTopic) -> None:
    topic = new_topic()
    raw.produce(topic, batch([b"one", b"two"]))
    found = _run("target", target.bootstrap, topic)
    assert found["start"] == found["end"] == {topic: {"0": 2}}
