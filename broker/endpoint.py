"""Where clients reach a node, as one of its listeners, or of another node's, is told to them."""

from __future__ import annotations


class Endpoint:
    """Where clients reach a node."""

    __slots__ = ("host", "node_id", "port", "rack")

    def __init__(self, node_id: int, host: str, port: int, rack: str | None = None) -> None:
        self.node_id = node_id
        self.host = host
        self.port = port
        self.rack = rack
