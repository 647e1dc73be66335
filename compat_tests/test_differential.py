"""Drawn requests to both brokers: no difference but the allowed ones; and a planted difference is found."""

from __future__ import annotations

import pytest

from compat_tests.differential import differences
from compat_tests.harness import World, both_brokers
from compat_tests.targets import LockstepTarget


@pytest.mark.tier(name="rest")
@pytest.mark.parametrize("seed", [1])
def test_lockstep_answers_as_kafka(world: World, seed: int) -> None:
    if not both_brokers():
        pytest.skip("needs both brokers")
    found = differences(seed, 500, world.target("lockstep"), world.target("kafka"))
    assert not found, "\n".join(str(each) for each in found[:3])


def test_a_planted_difference_is_found() -> None:
    """A broker that stamps records itself answers questions by time differently, and nothing else."""
    with LockstepTarget() as one, LockstepTarget({"log.message.timestamp.type": "LogAppendTime"}) as other:
        found = differences(1, 150, one, other)
        assert found
        assert {each.request[0] for each in found} == {"list_offsets"}
