"""The text form of the ids of topics and clusters."""

from __future__ import annotations

import base64


def format_uuid(identity: bytes) -> str:
    """Returns an id of 16 bytes as Kafka's tools print it: 22 characters."""
    return base64.urlsafe_b64encode(identity).rstrip(b"=").decode()
