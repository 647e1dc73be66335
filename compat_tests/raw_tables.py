"""Versions of messages that kio does not have, written and read by Lockstep's own tables.

Owns: dictionaries to bytes and back for `compat_tests.raw`. `tests/protocol/test_against_kafka_java.py` holds
the tables against Apache Kafka's own classes, so they are a judge as good as kio. Field names are Kafka's.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Mapping
from typing import Any

from lockstep.protocol.api import api_key_named, messages_for, request_header_version, response_header
from lockstep.protocol.compiler import decode, encode_bytes
from lockstep.protocol.fields import Field, Struct


def request_frame(api: str, api_version: int, correlation_id: int, fields: Mapping[str, Any]) -> bytes:
    """The whole frame, length included. TypeError for a field that the message does not have."""
    api_key = api_key_named(api)
    kind = messages_for(api_key)[0]
    client_id = b"compat-tests"
    head = struct.pack(">hhih", api_key, api_version, correlation_id, len(client_id)) + client_id
    if request_header_version(api_key, api_version) == 2:
        head += b"\0"
    frame = head + encode_bytes(_built(kind, fields), api_version)
    return struct.pack(">i", len(frame)) + frame


def parse_response(api: str, api_version: int, frame: bytes) -> dict[str, Any]:
    """The body as a dictionary; every byte of the frame must be used."""
    api_key = api_key_named(api)
    body = len(response_header(api_key, api_version, 0))
    return _plain(decode(messages_for(api_key)[1], api_version, frame, body), api_version)


def _built(kind: type[Struct], values: Mapping[str, Any]) -> Struct:
    rows = {field.name: field for field in kind.SCHEMA.fields}
    if unknown := values.keys() - rows.keys():
        raise TypeError(f"{kind.SCHEMA.name} has no {', '.join(sorted(unknown))}")
    return kind(**{name: _value(rows[name], value) for name, value in values.items()})


def _value(field: Field, value: Any) -> Any:
    inner = (field.wire.element or field.wire).struct
    if isinstance(value, uuid.UUID):
        return value.bytes
    if inner is None or value is None:
        return value
    return [_built(inner, each) for each in value] if field.wire.element else _built(inner, value)


def _plain(message: Struct, version: int) -> dict[str, Any]:
    rows = [field for field in message.SCHEMA.fields if version in field.versions]
    return {field.name: _plain_value(field, getattr(message, field.name), version) for field in rows}


def _plain_value(field: Field, value: Any, version: int) -> Any:
    if isinstance(value, Struct):
        return _plain(value, version)
    if isinstance(value, list):
        return [_plain(each, version) if isinstance(each, Struct) else each for each in value]
    return uuid.UUID(bytes=bytes(value)) if field.wire.name == "uuid" else value
