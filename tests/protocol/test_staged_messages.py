"""Staged producer ids: above Kafka's, and each names its query."""

from __future__ import annotations

from lockstep.protocol.staged_messages import (
    is_staged,
    is_staged_by,
    owner_of,
    staged_producer_id,
    staged_query,
    staged_transactional_id,
)
from tests.support.cases import each_case


@each_case("number", [0, 7, (1 << 33) - 1, 1 << 33])
def test_an_id_names_its_query(number: int) -> None:
    made = staged_producer_id("a query", number)
    assert 0 < made < 1 << 63 and is_staged(made)
    assert is_staged_by(made, "a query") and not is_staged_by(made, "another query")
    assert owner_of(made) == owner_of(staged_producer_id("a query", 1))


def test_numbers_make_different_ids() -> None:
    assert staged_producer_id("q", 1) != staged_producer_id("q", 2)


def test_kafkas_ids_are_none_of_these() -> None:
    assert not is_staged((1 << 62) - 1) and not is_staged(-1) and not is_staged_by(5, "q")


def test_a_request_names_its_query() -> None:
    assert staged_query(staged_transactional_id("q/1")) == "q/1"
    assert staged_query("an application's own") is None
