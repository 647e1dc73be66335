"""Our tables are Kafka's: names, versions, types, nullable, tags, defaults, ignorable, field by field."""

from __future__ import annotations

import re
from typing import Any

import pytest

from lockstep.protocol.api import ApiKey, request_header_version, response_header_version
from lockstep.protocol.fields import NO_VERSIONS, Field, Schema, Struct, Versions
from lockstep.protocol.messages import MESSAGES
from lockstep.protocol.primitives import ZERO_UUID

pytestmark = pytest.mark.java

CLASSES = [cls for pair in MESSAGES.values() for cls in pair]

_PLAIN_DEFAULTS: dict[str, Any] = {
    "bool": False,
    "float64": 0.0,
    "string": "",
    "bytes": b"",
    "records": None,
    "uuid": ZERO_UUID,
}


def snake_case(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", name).lower()


def _default(row: dict[str, Any]) -> Any:
    """What Kafka's definition means by the default of a field that is not a struct."""
    wire, given = row["type"], row.get("default")
    if given == "null":
        return None
    if wire.startswith("[]"):
        return []
    if given is None:
        return _PLAIN_DEFAULTS.get(wire, 0)
    if wire == "bool":
        return given in (True, "true")
    if wire == "string":
        return given
    return int(str(given), 0)


def _versions(row: dict[str, Any], key: str) -> Versions:
    return Versions.parse(row[key]) if key in row else NO_VERSIONS


def _check_field(field: Field, row: dict[str, Any], structs: dict[str, Any]) -> None:
    assert field.name == snake_case(row["name"])
    assert str(field.wire) == row["type"], field.name
    assert field.versions == _versions(row, "versions"), field.name
    assert field.nullable == _versions(row, "nullableVersions"), field.name
    assert field.tagged == _versions(row, "taggedVersions"), field.name
    assert field.tag == row.get("tag"), field.name
    assert field.ignorable == (row.get("ignorable") in (True, "true")), field.name
    expected = None if "flexibleVersions" not in row else Versions.parse(row["flexibleVersions"])
    assert field.flexible == expected, field.name
    inner = (field.wire.element or field.wire).struct
    if field.wire.struct is None:
        assert field.default == _default(row), field.name
        assert type(field.default) is type(_default(row)), field.name
    else:
        assert (field.default is None) == (row.get("default") == "null"), field.name
    if inner is not None:
        rows = row["fields"] if "fields" in row else structs[inner.SCHEMA.name]["fields"]
        _check_fields(inner.SCHEMA, rows, structs)


def _check_fields(schema: Schema, rows: list[dict[str, Any]], structs: dict[str, Any]) -> None:
    assert [field.name for field in schema.fields] == [snake_case(row["name"]) for row in rows]
    for field, row in zip(schema.fields, rows, strict=True):
        _check_field(field, row, structs)


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.SCHEMA.name)
def test_table_equals_kafkas_definition(
    kafka_definitions: dict[str, dict[str, Any]], cls: type[Struct]
) -> None:
    schema = cls.SCHEMA
    definition = kafka_definitions[schema.name]
    assert schema.api_key == definition["apiKey"]
    assert schema.kind == definition["type"]
    assert schema.versions == Versions.parse(definition["validVersions"])
    assert schema.flexible == Versions.parse(definition["flexibleVersions"])
    structs = {row["name"]: row for row in definition.get("commonStructs", [])}
    _check_fields(schema, definition["fields"], structs)


def test_header_versions_follow_the_definitions(kafka_definitions: dict[str, dict[str, Any]]) -> None:
    seen = 0
    for definition in kafka_definitions.values():
        if definition["type"] != "request" or definition["validVersions"] == "none":
            continue
        flexible = Versions.parse(definition["flexibleVersions"])
        for version in Versions.parse(definition["validVersions"]):
            key = definition["apiKey"]
            assert request_header_version(key, version) == (2 if version in flexible else 1)
            expected = version in flexible and key != ApiKey.API_VERSIONS
            assert response_header_version(key, version) == expected
            seen += 1
    assert seen > 200
