"""Clusters: which brokers a node's metadata names, and free ports."""

from __future__ import annotations

import struct

from compat_tests.clusters import _broker_ids, free_ports


def test_brokers_are_read_from_metadata() -> None:
    def broker(number: int, rack: bytes | None) -> bytes:
        tail = struct.pack(">h", -1) if rack is None else struct.pack(">h", len(rack)) + rack
        return struct.pack(">ih4si", number, 4, b"host", 9092) + tail

    answer = struct.pack(">ii", 1, 2) + broker(7, None) + broker(2, b"r1") + b"more"
    assert _broker_ids(answer) == {2, 7}
    assert len(set(free_ports(20))) == 20
