"""The configurations of a topic: DescribeConfigs, sent to any broker.

Owns: one request about one topic, repeated while connections break. Does not: change anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lockstep.protocol.client_errors import BrokerError
from lockstep.protocol.config_resources import ResourceType
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from spark_connector.connection.cluster import ClusterClient


def topic_configs(
    cluster: ClusterClient, topic: str, names: Sequence[str], *, retriable: Iterable[ErrorCode] = ()
) -> dict[str, str | None]:
    """The values of these configurations; unknown names are left out.

    Raises BrokerError, ConnectionFailed. Args: retriable: as of `ClusterClient.retry`.
    """
    resource = DescribeConfigsResource(
        resource_type=ResourceType.TOPIC, resource_name=topic, configuration_keys=list(names)
    )

    def attempt() -> dict[str, str | None]:
        found: dict[str, str | None] = {}
        request = DescribeConfigsRequest(resources=[resource])
        for result in cluster.any().call(request, DescribeConfigsResponse).results:
            if result.error_code:
                raise BrokerError(result.error_code, f"topic {topic}", result.error_message)
            found |= {each.name: each.value for each in result.configs if each.name in names}
        return found

    return cluster.retry(attempt, retriable=retriable)
