"""Ids as people read them."""

from __future__ import annotations

import uuid

from lockstep.protocol.ids import format_uuid


def test_an_id_is_written_as_kafkas_tools_write_it() -> None:
    assert format_uuid(bytes(16)) == "AAAAAAAAAAAAAAAAAAAAAA"
    assert format_uuid(uuid.UUID("f0f1f2f3-f4f5-f6f7-f8f9-fafbfcfdfeff").bytes) == "8PHy8_T19vf4-fr7_P3-_w"
