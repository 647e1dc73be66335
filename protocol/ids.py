"""How ids of topics and clusters are written where people read them."""

from __future__ import annotations

import base64


def format_uuid(identity: bytes) -> str:
    """An id of 16 bytes as Kafka's tools show it: 22 characters."""
    return base64.urlsafe_b64encode(identity).rstrip(b"=").decode()
