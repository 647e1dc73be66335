"""Handlers: `produce`, `describe_producers`; `atomic_produce` is a Produce that appends all partitions or
none."""

from __future__ import annotations

from collections.abc import Mapping

from lockstep.broker.metadata.metadata_cache import Cluster
from lockstep.broker.produce.api.describe_producers import DescribeProducers
from lockstep.broker.produce.appender import Appender
from lockstep.broker.requests.request_context import RequestHandler


def handlers(cluster: Cluster, appenders: Mapping[int, Appender]) -> list[RequestHandler]:
    """The handlers of this room."""
    return [DescribeProducers(cluster, appenders)]
