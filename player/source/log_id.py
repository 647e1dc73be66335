"""What a mark is of, as text: the same from every source of one log, so that one may take another's place."""

from __future__ import annotations

import base64


def log_id(cluster_id: str, topic_id: bytes, partition: int) -> str:
    """`topic_id`: its 16 bytes; written as Kafka's tools show it."""
    return f"{cluster_id}/{base64.urlsafe_b64encode(topic_id)[:22].decode()}/{partition}"
