"""The term runs and sizes against a plain list."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.storage.raft.term_index import TermIndex

STEPS = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 5)), max_size=30)
Plain = dict[int, tuple[int, int]]


def made(base_index: int, steps: list[tuple[int, int]]) -> tuple[TermIndex, Plain]:
    """The same entries twice; the plain one is index → (term, size)."""
    terms = TermIndex(base_index, base_index)
    term, plain = base_index, {base_index: (base_index, 0)}
    for place, (step, size) in enumerate(steps):
        term += step
        terms.append(base_index + 1 + place, term, size)
        plain[base_index + 1 + place] = (term, size)
    return terms, plain


def agree(terms: TermIndex, plain: Plain) -> None:
    last = max(plain)
    assert (terms.base_index, terms.last_index, terms.last_term) == (min(plain), last, plain[last][0])
    for index in range(-2, 45):
        assert terms.term_at(index) == (plain[index][0] if index in plain else None)


@given(st.integers(0, 5), STEPS, st.integers(-1, 40), st.integers(-1, 40))
def test_same_as_a_list_of_terms(
    base_index: int, steps: list[tuple[int, int]], trim_to: int, truncate_to: int
) -> None:
    terms, plain = made(base_index, steps)
    if trim_to > terms.last_index:
        with pytest.raises(ValueError, match="no entry"):
            terms.trim(trim_to)
    else:
        terms.trim(trim_to)
        plain = {index: each for index, each in plain.items() if index >= max(trim_to, base_index)}
    agree(terms, plain)
    if truncate_to < min(plain):
        with pytest.raises(ValueError, match="below the checkpoint"):
            terms.truncate(truncate_to)
    else:
        terms.truncate(truncate_to)
        plain = {index: each for index, each in plain.items() if index <= truncate_to}
    agree(terms, plain)
    terms.append(terms.last_index + 1, terms.last_term + 1, 9)
    plain[max(plain) + 1] = (plain[max(plain)][0] + 1, 9)
    agree(terms, plain)
    assert terms.size_between(terms.last_index, terms.last_index) == 9


@given(st.integers(0, 5), STEPS, st.integers(0, 20), st.integers(0, 10))
def test_sizes_and_runs(base_index: int, steps: list[tuple[int, int]], trim_by: int, cap: int) -> None:
    terms, plain = made(base_index, steps)
    terms.trim(min(base_index + trim_by, terms.last_index))
    for first in range(terms.base_index + 1, terms.last_index + 1):
        for last in range(first - 1, terms.last_index + 1):
            between = range(first, last + 1)
            assert terms.size_between(first, last) == sum(plain[index][1] for index in between)
            runs = [
                (index, plain[index][0])
                for index in between
                if index == first or plain[index][0] != plain[index - 1][0]
            ]
            assert list(terms.runs_between(first, last)) == runs
        within = terms.last_within(first, cap)
        assert within == first or terms.size_between(first, within) <= cap
        assert within == terms.last_index or terms.size_between(first, within + 1) > cap


@given(st.integers(0, 5), STEPS, st.integers(-1, 20), st.integers(-1, 40))
def test_last_of_term(base_index: int, steps: list[tuple[int, int]], max_term: int, max_index: int) -> None:
    terms, plain = made(base_index, steps)
    there = [index for index, (term, _) in plain.items() if term <= max_term and index <= max_index]
    assert terms.last_of_term(max_term, max_index) == max(there, default=-1)


def test_gaps_and_older_terms_are_refused() -> None:
    terms = TermIndex()
    terms.append(1, 3)
    with pytest.raises(ValueError, match="does not follow"):
        terms.append(3, 3)
    with pytest.raises(ValueError, match="older"):
        terms.append(2, 2)
    assert terms.last_index == 1
