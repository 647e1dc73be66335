"""All to all."""

from __future__ import annotations

from lockstep.player.core.messages import Entry
from lockstep.player.core.router import route_entries
from lockstep.player.routing.broadcast import BroadcastRouter


def test_the_same_bytes_for_each_once() -> None:
    entry = Entry(7, b"a batch")
    ((first, second),) = route_entries(BroadcastRouter(["a", "b", "a"]), [entry])
    assert (first[0], second[0]) == ("a", "b") and first[1].payload is second[1].payload is entry.payload
    assert (first[1].position, first[1].size_bytes, first[1].partition) == (7, 7, None)
    ((_, part),) = BroadcastRouter(["a"])(Entry(7, b"a batch", 3))
    assert part.partition == 3


def test_targets_added_and_removed_in_a_mapping() -> None:
    names = {"a": 1}
    everything = BroadcastRouter(names)
    names["b"] = 2
    assert [name for name, _ in everything(Entry(7, b"a batch"))] == ["a", "b"]
    del names["a"]
    assert [name for name, _ in everything(Entry(8, b"a batch"))] == ["b"]
