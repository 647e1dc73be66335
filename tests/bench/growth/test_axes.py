"""The axes that growth is measured over."""

from __future__ import annotations

from bench.growth.axes import AXES


def test_every_axis_begins_at_one_and_goes_as_far_as_is_promised() -> None:
    ends = {axis.name: axis.values[-1] for axis in AXES}
    assert ends == {"partitions": 10_000, "connections": 2_000, "groups": 1_000, "log_gib": 20}
    assert all(axis.values[0] == 1 and len(axis.values) >= 3 for axis in AXES)
