"""The term runs against a plain list."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.raft.term_index import TermIndex


@given(st.integers(0, 5), st.lists(st.integers(0, 2), max_size=30), st.integers(-1, 40))
def test_same_as_a_list_of_terms(base_index: int, steps: list[int], trim_to: int) -> None:
    terms = TermIndex(base_index, base_index)
    term, plain = base_index, {base_index: base_index}
    for place, step in enumerate(steps):
        term += step
        terms.append(base_index + 1 + place, term)
        plain[base_index + 1 + place] = term
    last = base_index + len(steps)
    if trim_to > last:
        with pytest.raises(ValueError, match="no entry"):
            terms.trim(trim_to)
    else:
        terms.trim(trim_to)
        plain = {index: each for index, each in plain.items() if index >= max(trim_to, base_index)}
    assert (terms.last_index, terms.last_term) == (last, term)
    for index in range(-2, 45):
        assert terms.term_at(index) == plain.get(index)


def test_gaps_and_older_terms_are_refused() -> None:
    terms = TermIndex()
    terms.append(1, 3)
    with pytest.raises(ValueError, match="does not follow"):
        terms.append(3, 3)
    with pytest.raises(ValueError, match="older"):
        terms.append(2, 2)
    assert terms.last_index == 1
