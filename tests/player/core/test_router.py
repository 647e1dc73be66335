"""What a router may return."""

import pytest

from lockstep.player.core.messages import Entry, Part, dummy
from lockstep.player.core.router import BadRoute, Parts, route_entries
from tests.support.cases import each_case


def test_an_entry_has_a_part_for_each_of_its_targets() -> None:
    first, second = Part(3, b"x", 1), Part(3, b"", 0)
    assert route_entries(lambda entry: [("a", first), ("b", second)], [Entry(3, b"")]) == [
        [("a", first), ("b", second)]
    ]
    assert route_entries(lambda entry: (), [Entry(3, b""), Entry(4, b"")]) == [(), ()]


@each_case(
    ("parts", "text"),
    [
        ([("a", Part(3, b"x", 1)), ("a", Part(3, b"y", 1))], "two parts for one target"),
        ([("a", Part(4, b"x", 1))], "part of 'a' .* is not at 3"),
        ([("b", dummy(3))], "no payload"),
    ],
)
def test_what_could_not_be_delivered_once_and_in_order(parts: Parts, text: str) -> None:
    with pytest.raises(BadRoute, match=text):
        route_entries(lambda entry: parts, [Entry(3, b"")])
