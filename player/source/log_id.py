"""The identity of a log, as text: the same from every source of one log, so that one may replace another."""

from __future__ import annotations

import base64


def log_id(cluster_id: str, topic_id: bytes, partition: int) -> str:
    """`topic_id`: its 16 bytes; written as Kafka's tools show it."""
    return f"{cluster_id}/{_encode_topic_id(topic_id)}/{partition}"


def group_log_id(cluster_id: str, topic_id: bytes, group: int) -> str:
    """The log id of a topic's partitions in one log group, in the order of its LSNs."""
    return f"{cluster_id}/{_encode_topic_id(topic_id)}/log-group-{group}"


def _encode_topic_id(topic_id: bytes) -> str:
    return base64.urlsafe_b64encode(topic_id)[:22].decode()
