"""The campaign of the group protocols: Lockstep against the recorded answers of Kafka; planted mistakes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from tests.campaigns import group_protocols
from tests.campaigns.group_protocol_plants import OF_MIXED_GROUPS, PLANTS, Mistake
from tests.campaigns.group_protocol_steps import STYLES, sequence
from tests.campaigns.group_protocols import (
    UNSERVED,
    Side,
    against_recorded,
    first_difference,
    recorded,
)
from tests.support.cases import each_case

pytestmark = pytest.mark.timeout(900)
BATCH = 24
MISTAKES = {**PLANTS, **({} if "classic" in UNSERVED else OF_MIXED_GROUPS)}


@pytest.fixture(scope="module")
def side() -> Iterator[Side]:
    (made,) = group_protocols.started(group_protocols.lockstep_side())
    yield made
    made.close()


def test_recorded_sequences_are_answered_as_apache_kafka_did(side: Side) -> None:
    asked, kafkas = recorded()
    assert len(asked) >= 200 and {each.style for each in asked} == set(STYLES) - UNSERVED
    differences = against_recorded(side, asked, kafkas)
    assert not differences, "\n".join(differences[:5])


@each_case("name", sorted(MISTAKES))
def test_a_planted_mistake_is_noticed(side: Side, name: str) -> None:
    """A broker that answers with one mistake differs from the record."""
    asked, kafkas = recorded()
    mistake = Mistake(MISTAKES[name])

    async def differ(number: int) -> bool:
        honest = kafkas[asked[number].number]
        ours = await side.answers(asked[number], 100 + sorted(MISTAKES).index(name), 1.0, mistake)
        return first_difference(ours, honest) is not None

    async def some(first: int) -> list[bool]:
        return await asyncio.gather(*map(differ, range(first, min(first + BATCH, len(asked)))))

    for first in range(0, len(asked), BATCH):
        seen = asyncio.run(some(first))
        if mistake.made:
            assert any(seen)
            return
    pytest.fail("no recorded sequence has an answer that the mistake changes")


def test_the_same_seed_asks_the_same() -> None:
    for number in range(200):
        assert sequence(7, number) == sequence(7, number)
    assert sequence(7, 3) != sequence(8, 3)


def test_the_first_difference_counts() -> None:
    assert first_difference(["a", "b", "c"], ["a", "x", "y"]) == 1
    assert first_difference(["a"], ["a"]) is None
