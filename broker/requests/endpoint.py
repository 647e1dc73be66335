"""The address of a node for clients."""

from __future__ import annotations


class Endpoint:
    """A node as one client can reach it."""

    __slots__ = ("host", "node_id", "port", "rack")

    def __init__(self, node_id: int, host: str, port: int, rack: str | None = None) -> None:
        self.node_id = node_id
        self.host = host
        self.port = port
        self.rack = rack
