"""What the broker sees of a consumer's subscription: its topics, or that it is none."""

from __future__ import annotations

from struct import pack

from lockstep.broker.groups.subscription import topics_of
from tests.support.cases import each_case


def subscription(*names: bytes, version: int = 1, after: bytes = b"\xff\xff\xff\xff") -> bytes:
    body = b"".join(pack(">h", len(name)) + name for name in names)
    return pack(">hi", version, len(names)) + body + after


@each_case("version", [0, 1, 3, 32_767])
def test_topics_are_read_and_what_later_versions_added_is_passed_over(version: int) -> None:
    data = subscription(b"orders", "größe".encode(), b"orders", version=version)
    assert topics_of(data) == {"orders", "größe"}


def test_no_topics_is_a_subscription() -> None:
    assert topics_of(subscription()) == set()


@each_case(
    "data",
    [
        b"",
        subscription(version=-1),
        pack(">hi", 0, -1),
        pack(">hih", 0, 1, -1),
        pack(">hi", 0, 1 << 30),
        subscription(b"\xff\xfe"),
        *(subscription(b"orders", after=b"")[:size] for size in range(14)),
    ],
)
def test_anything_else_is_none(data: bytes) -> None:
    assert topics_of(data) is None
