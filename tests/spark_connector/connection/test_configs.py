"""How a topic is configured, as a broker tells it."""

from __future__ import annotations

import pytest

from lockstep.protocol.errors import ErrorCode
from spark_connector.connection import BrokerError, ClusterClient, topic_configs
from tests.spark_connector.conftest import NewTopic


def test_the_requested_configs_are_returned(cluster: ClusterClient, new_topic: NewTopic) -> None:
    found = topic_configs(cluster, new_topic(), ["retention.bytes", "cleanup.policy", "nobody.knows.it"])
    assert found == {"retention.bytes": "-1", "cleanup.policy": "delete"}


def test_a_topic_that_is_not_there(cluster: ClusterClient) -> None:
    with pytest.raises(BrokerError, match="topic nowhere: ") as refused:
        topic_configs(cluster, "nowhere", ["retention.bytes"])
    assert refused.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
