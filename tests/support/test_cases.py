"""A table's test runs every case, names each that failed, and is seen by pytest without the table's names."""

from __future__ import annotations

import asyncio
from inspect import signature
from typing import Any

import pytest

from tests.support.cases import check_each, each_case


def test_every_case_runs_and_each_failure_is_named() -> None:
    ran: list[int] = []

    @each_case(("left", "right"), [(1, 1), (1, 2), (3, 3), (3, 4)])
    def test(kept: list[int], left: int, right: int) -> None:
        kept.append(left)
        assert left == right

    assert list(signature(test).parameters) == ["kept"]
    with pytest.raises(BaseExceptionGroup, match=r"2 of 4 cases failed: 1 \(1, 2\); 3 \(3, 4\)") as caught:
        test(kept=ran)
    assert ran == [1, 1, 3, 3]
    assert all(isinstance(each, AssertionError) for each in caught.value.exceptions)


def test_one_failure_is_raised_as_it_is() -> None:
    @each_case("value", [0, 1, 0], ids=lambda value: f"number {value}")
    def test(value: int) -> None:
        with pytest.raises(ZeroDivisionError):
            assert 1 // value

    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE") as caught:
        test()
    assert caught.value.__notes__ == ["case 1 (number 1) of 3"]


def test_coroutines_and_tables_over_tables() -> None:
    ran = []

    @each_case("outer", [1, 2])
    @each_case("inner", [pytest.param("a", id="first"), "b"])
    async def test(inner: str, outer: int) -> None:
        ran.append((outer, inner))
        assert (outer, inner) != (2, "a")

    with pytest.raises(AssertionError) as caught:
        asyncio.run(test())
    assert ran == [(1, "a"), (1, "b"), (2, "a"), (2, "b")]
    assert caught.value.__notes__ == ["case 0 (first) of 2", "case 1 (2) of 2"]


@pytest.mark.parametrize(
    ("names", "cases", "words"),
    [
        ("other", [1], "no parameter"),
        ("value", [], "no cases"),
        ("value, other", [(1,)], "1 values for 2"),
        ("value", [pytest.param(1, marks=pytest.mark.java)], "no marks"),
    ],
)
def test_a_wrong_table_is_refused(names: str, cases: list[Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):

        @each_case(names, cases)
        def test(value: int) -> None:
            raise AssertionError(value)


def test_a_case_that_skips_fails() -> None:
    @each_case("value", [1])
    def test(value: int) -> None:
        pytest.skip(str(value))

    with pytest.raises(AssertionError, match="may not"):
        test()


def test_cases_that_hang_on_a_fixture() -> None:
    def check(value: int, other: int) -> None:
        assert value < other

    check_each([(1, 2)], check)
    with pytest.raises(AssertionError) as caught:
        check_each([(1, 2), (3, 2)], check, name=lambda value: f"v{value}")
    assert caught.value.__notes__ == ["case v3-v2 of 2"]
    with pytest.raises(AssertionError, match="no cases"):
        check_each([], check)
