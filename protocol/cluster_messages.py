"""The messages of `lockstep cluster` to brokers: an API of our own in Kafka's frames, not part of Kafka's
protocol.

Its key is far from Kafka's and no ApiVersions lists it, so clients never use it; another broker closes the
connection that sends it. Bodies are JSON objects in UTF-8: this is no hot path, and readable in a trace. They
are bytes, not strings, because strings end at 32 KiB. Their content: `broker/controller/cluster_admin.py`.
"""

from __future__ import annotations

from typing import Final

from lockstep.protocol.fields import Struct, byte_string, int16, message, string
from lockstep.protocol.primitives import Buffer

CLUSTER_API_KEY: Final = 20000


@message(api_key=20000, versions="0", flexible="0+", kind="request")
class LockstepClusterRequest(Struct):
    """A query or a command: {"do": "status"}, {"do": "add", "node": 4} and so on."""

    body: Buffer = byte_string()


@message(api_key=20000, versions="0", flexible="0+", kind="response")
class LockstepClusterResponse(Struct):
    """The result, or the error."""

    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    body: Buffer = byte_string()
