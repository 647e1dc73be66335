"""Brokers that a case has to itself, because it kills them or sets them up in its own way.

The fixture `target` of such a file takes the place of the shared one; its parameters and the broker are here.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

import pytest

from compat_tests import harness
from compat_tests.clusters import LockstepThree
from compat_tests.kafka_jars import SHORT_LIVED, require_java
from compat_tests.raw import raw_connection
from compat_tests.targets import KafkaTarget, LockstepTarget, Target

EACH_TARGET = [pytest.param(name, id=f"on-{name}") for name in harness.wanted_targets()]
"""For `pytest.fixture(params=...)`: the names of what cases run against."""

FLUSHED: Mapping[str, str] = {"log.flush.interval.messages": "1"}
"""For Kafka, which then flushes each append, so that both promise the same."""

SOON_MISSED: Mapping[str, str] = {
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
}
"""For Kafka, which then is quick to see that its broker was killed, and that it is back."""


def own_target(name: str, kafka_settings: Mapping[str, str] = FLUSHED) -> Target:
    """A target that is not running yet. Args: kafka_settings: of Apache Kafka alone, where it is that."""
    if name == KafkaTarget.name:
        require_java()
        return KafkaTarget(kafka_settings, heap="256M", jvm=SHORT_LIVED)
    return LockstepThree() if name == LockstepThree.name else LockstepTarget()


def kill_leader(target: Target, topic: str, away_s: float = 0.0) -> None:
    """kill -9 of the only broker or, of three nodes, of the one that leads the topic; and start it again.

    Args: away_s: how long the others of three nodes are without it, at least.
    """
    if not isinstance(target, LockstepThree):
        target.kill9()
        target.restart()
        return
    with raw_connection(target.bootstrap) as raw:
        leader = raw.leader_of(topic)
    target.cluster.kill9(leader)
    time.sleep(away_s)
    target.cluster.restart(leader)
    target.cluster.await_members(target.cluster.nodes)
