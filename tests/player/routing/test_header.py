"""The header `lockstep-targets`."""

from __future__ import annotations

from lockstep.player.routing.header import HeaderSelector
from lockstep.protocol.records.record import Record
from tests.support.cases import each_case


def said(*headers: bytes | None, name: str = "lockstep-targets") -> Record:
    return Record(0, 0, b"key", b"value", [("other", b"x"), *[(name, each) for each in headers]])


@each_case(
    ("headers", "names"),
    [
        ([b"a"], ["a"]),
        ([b"a,b"], ["a", "b"]),
        ([b" a , b\t"], ["a", "b"]),
        ([b"a", b"b, c"], ["a", "b", "c"]),
        ([b"a,,b,"], ["a", "b"]),
        ([b""], []),
        ([None], []),
        ([b"\xff"], ["�"]),
    ],
)
def test_names(headers: list[bytes | None], names: list[str]) -> None:
    assert list(HeaderSelector(["default"])(said(*headers))) == names


def test_without_the_header_it_is_the_default() -> None:
    assert list(HeaderSelector(["x", "y"])(said())) == ["x", "y"]
    assert list(HeaderSelector()(said())) == []


def test_another_name() -> None:
    choice = HeaderSelector(["default"], "shards")
    assert list(choice(said(b"a", name="shards"))) == ["a"] and list(choice(said(b"a"))) == ["default"]
