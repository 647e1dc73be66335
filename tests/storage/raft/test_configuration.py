"""Configurations as values and bytes; the stack against a plain list."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.storage.raft.configuration import MAX_MEMBERS, Configuration, ConfigurationStack

IDS = st.lists(st.integers(0, 2**63 - 1), max_size=5).map(tuple)


@given(IDS, IDS, IDS)
def test_comes_back_from_its_bytes(
    voters: tuple[int, ...], old_voters: tuple[int, ...], learners: tuple[int, ...]
) -> None:
    configuration = Configuration(voters, old_voters, learners)
    assert Configuration.decode(configuration.encode()) == configuration


@given(st.binary(max_size=40))
def test_any_bytes_are_a_configuration_or_a_value_error(data: bytes) -> None:
    with contextlib.suppress(ValueError):
        assert Configuration.decode(data).encode() == data


def test_bytes_that_are_refused() -> None:
    good = Configuration((1, 2), (3,), (4,)).encode()
    for bad in (b"", good[:-1], good + b"\0", b"\x01" + good[1:], good[:1] + b"\xff\xff" + good[3:]):
        with pytest.raises(ValueError, match="a configuration of"):
            Configuration.decode(bad)
    many = Configuration(tuple(range(MAX_MEMBERS + 1)))
    with pytest.raises(ValueError, match="with"):
        Configuration.decode(many.encode())


def test_members_and_voters() -> None:
    joint = Configuration((3, 2), (1, 2), (9, 4))
    assert (joint.joint, joint.members) == (True, (1, 2, 3, 4, 9))
    assert joint.voter_sets() == ((3, 2), (1, 2))
    assert [member for member in range(10) if joint.is_voter(member)] == [1, 2, 3]
    plain = Configuration((1,))
    assert (plain.joint, plain.members, plain.voter_sets()) == (False, (1,), ((1,),))


def named(number: int) -> Configuration:
    return Configuration((number,))


@given(
    st.integers(0, 4),
    st.lists(st.integers(1, 4), max_size=8),
    st.lists(st.tuples(st.booleans(), st.integers(-1, 40)), max_size=3),
)
def test_same_as_a_list(base: int, gaps: list[int], truncation_count: list[tuple[bool, int]]) -> None:
    stack, plain, index = ConfigurationStack(named(base), base), [(base, named(base))], base
    for gap in gaps:
        index += gap
        stack.append(index, named(index))
        plain.append((index, named(index)))
    for from_below, at in truncation_count:
        if from_below:
            stack.trim(at)
            keep = max([0, *(place for place, (start, _) in enumerate(plain) if start <= at)])
            plain = plain[keep:]
        else:
            stack.truncate(at)
            plain = plain[:1] + [item for item in plain[1:] if item[0] <= at]
    assert (stack.current_index, stack.current) == plain[-1]
    assert stack.previous == (plain[-2][1] if len(plain) > 1 else None)
    for first in range(-1, 40):
        in_force = [configuration for start, configuration in plain if start <= first]
        assert stack.at(first) == (in_force[-1] if in_force else plain[0][1])
        for last in range(first - 1, 40, 3):
            wanted = [item for item in plain if first <= item[0] <= last]
            assert list(stack.items_between(first, last)) == wanted


def test_a_configuration_comes_last_or_not_at_all() -> None:
    stack = ConfigurationStack(named(1), 5)
    for index in (4, 5):
        with pytest.raises(ValueError, match="does not follow 5"):
            stack.append(index, named(2))
