"""kio, another implementation made from the same definitions, reads what we write and we what it writes.

kio differs in three ways that the conversion below knows: durations are timedeltas named without `_ms`,
timestamps are datetimes (-1 is None), the zero UUID is None. It refuses unknown tagged fields, so those
are left to `test_against_kafka_java`.
"""

from __future__ import annotations

import io
from dataclasses import fields as dataclass_fields
from datetime import UTC, datetime, timedelta
from importlib import import_module
from typing import Any
from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode as KioErrorCode
from kio.serial import entity_reader, entity_writer

from lockstep.protocol.api import ApiKey
from lockstep.protocol.compiler import decode, encode_bytes
from lockstep.protocol.fields import Field, Struct
from lockstep.protocol.primitives import ZERO_UUID
from tests.protocol.instances import APIS, api_name, case_id, cases, each_message
from tests.support.cases import check_each

pytestmark = pytest.mark.tier(name="rest")

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LATEST_MS = 4_000_000_000_000
"""A datetime ends in the year 9999; later timestamps are not kio's to judge."""

_KIOS_ERRORS = frozenset(int(code.value) for code in KioErrorCode)
_KIOS_TIMES = ("timestamp", "log_append_time_ms", "retention_time_ms")

_NEVER_UNKNOWN = (
    "transaction_start_time_ms",
    "session_lifetime_ms",
    *("max_lifetime_ms", "renew_period_ms", "expiry_time_period_ms"),
    *("issue_timestamp_ms", "expiry_timestamp_ms", "max_timestamp_ms"),
    *("issue_timestamp", "expiry_timestamp", "max_timestamp"),
)
"""Times that kio does not let be -1."""
_UNKNOWN_TO_KIO = {
    (ApiKey.INIT_PRODUCER_ID, 6),  # Kafka marks it unstable
    (ApiKey.API_VERSIONS, 5),
    (ApiKey.DELETE_GROUPS, 3),
    (ApiKey.TXN_OFFSET_COMMIT, 6),
    (ApiKey.UNREGISTER_CONTROLLER, 0),
}
"""Versions that kio does not have: the last four came with Kafka 4.4."""
_KIOS_NAMES = {"generation_id_or_member_epoch": "generation_id"}
"""What Kafka 4.4 renamed."""


def _kio_class(cls: type[Struct], version: int) -> type[Any]:
    schema = cls.SCHEMA
    assert schema.api_key is not None
    module = import_module(f"kio.schema.{ApiKey(schema.api_key).name.lower()}.v{version}.{schema.kind}")
    found: type[Any] = getattr(module, schema.name)
    return found


def _pairs(message: Struct, version: int, kio_class: type[Any]) -> list[tuple[Field, Any]]:
    """Our fields of this version beside kio's, which come in the same order."""
    ours = [field for field in message.SCHEMA.fields if version in field.versions]
    theirs = dataclass_fields(kio_class)
    assert len(ours) == len(theirs), (message.SCHEMA.name, [f.name for f in ours], [f.name for f in theirs])
    for our, their in zip(ours, theirs, strict=True):
        assert their.name in (our.name, our.name.removesuffix("_ms"), _KIOS_NAMES.get(our.name))
    return list(zip(ours, theirs, strict=True))


def _to_kio(message: Any, version: int, kio_class: type[Any]) -> Any:
    """The kio instance that means the same."""
    module = import_module(kio_class.__module__)
    values = {}
    for our, their in _pairs(message, version, kio_class):
        value = getattr(message, our.name)
        element = our.wire.element or our.wire
        if value is None:
            converted: Any = None
        elif element.struct is not None:
            nested = getattr(module, element.struct.SCHEMA.name)
            if our.wire.element is not None:
                converted = tuple(_to_kio(item, version, nested) for item in value)
            else:
                converted = _to_kio(value, version, nested)
        elif our.wire.element is not None:
            converted = tuple(value)
        else:
            converted = _scalar(their.metadata.get("kafka_type"), value)
        values[their.name] = converted
    return kio_class(**values)


def _scalar(kafka_type: str | None, value: Any) -> Any:
    match kafka_type:
        case "uuid":
            return None if value == ZERO_UUID else UUID(bytes=bytes(value))
        case "error_code":
            return KioErrorCode(value)
        case "timedelta_i32" | "timedelta_i64":
            return timedelta(milliseconds=value)
        case "datetime_i64":
            return None if value == -1 else _EPOCH + timedelta(milliseconds=value)
        case "bytes" | "records":
            return bytes(value)
    return value


def _within_kios_range(message: Any) -> Any:
    """Timestamps that a datetime can hold, error codes that kio knows; changed in place."""
    for field in message.SCHEMA.fields:
        value = getattr(message, field.name)
        if isinstance(value, Struct):
            _within_kios_range(value)
        elif isinstance(value, list):
            for item in value:
                if isinstance(item, Struct):
                    _within_kios_range(item)
        elif field.name.endswith("error_code"):
            setattr(message, field.name, value if value in _KIOS_ERRORS else 0)
        elif field.name in _NEVER_UNKNOWN or (field.name in _KIOS_TIMES and value != -1):
            setattr(message, field.name, abs(value) % _LATEST_MS)
    return message


KNOWN = {api: [(cls, v) for cls, v in cases(api) if (api, v) not in _UNKNOWN_TO_KIO] for api in APIS}


@pytest.mark.parametrize("api", [api for api in APIS if KNOWN[api]], ids=api_name)
def test_both_write_the_same_bytes_and_read_the_same_message(api: ApiKey) -> None:
    def check_version(cls: type[Struct], version: int) -> None:
        kio_class = _kio_class(cls, version)
        read, write = entity_reader(kio_class), entity_writer(kio_class)

        for message in map(_within_kios_range, each_message(cls, version, tags=False)):
            theirs = _to_kio(message, version, kio_class)
            data = encode_bytes(message, version)
            understood, size = read(data, 0)
            assert size == len(data)
            assert understood == theirs
            written = io.BytesIO()
            write(written, theirs)
            assert written.getvalue() == data
            assert decode(cls, version, written.getvalue()) == message

    check_each(KNOWN[api], check_version, case_id)
