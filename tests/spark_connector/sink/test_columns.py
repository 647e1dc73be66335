"""Which columns can be written; what cannot is refused by its name."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from spark_connector.options import OptionError
from spark_connector.sink.columns import SinkColumns
from tests.support.cases import each_case


def schema(**types: str) -> SimpleNamespace:
    """What is asked of Spark's StructType."""
    fields = [
        SimpleNamespace(name=name, dataType=SimpleNamespace(simpleString=lambda said=said: said))
        for name, said in types.items()
    ]
    return SimpleNamespace(fields=fields)


def test_what_is_allowed() -> None:
    assert SinkColumns.of(schema(value="string"), "t").names == {"value"}
    assert SinkColumns.of(schema(topic="string", key="binary", value="binary"), None).names == {
        "topic",
        "key",
        "value",
    }


@each_case(
    ("types", "words"),
    [
        (
            {"value": "binary", "other": "int"},
            "column other: is none of key, value, .*timestamp; select what is to be written",
        ),
        ({"value": "int"}, "column value: is int, and must be binary or string"),
        ({"key": "binary"}, "column value: is missing; select what is to be written under this name"),
    ],
)
def test_refused(types: dict[str, str], words: str) -> None:
    with pytest.raises(OptionError, match=f"^{words}$"):
        SinkColumns.of(schema(**types), "t")


def test_without_a_topic() -> None:
    with pytest.raises(OptionError, match="option topic: is missing; give it, or a column of this name"):
        SinkColumns.of(schema(value="binary"), None)
