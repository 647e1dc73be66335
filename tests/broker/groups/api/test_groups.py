"""The handlers of whole groups without a broker: DescribeGroups, ListGroups and DeleteGroups."""

from __future__ import annotations

from typing import Any

import pytest

from lockstep.broker.groups.api.delete_groups import DeleteGroups
from lockstep.broker.groups.api.describe_groups import DescribeGroups
from lockstep.broker.groups.api.list_groups import ListGroups
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from lockstep.protocol.messages.describe_groups import DescribedGroup, DescribeGroupsRequest
from lockstep.protocol.messages.list_groups import ListGroupsRequest
from tests.broker.fakes import client, header
from tests.broker.groups.api.fakes import FakeGroups

E = ErrorCode

GROUP_BITS = 1 << 3 | 1 << 6 | 1 << 8 | 1 << 10 | 1 << 11


@pytest.fixture
def groups() -> FakeGroups:
    """A group `g` with two members, and nothing else."""
    fake = FakeGroups()
    fake.world.stable(2)
    return fake


def describe(groups: FakeGroups, version: int, *names: str, operations: bool = False) -> list[DescribedGroup]:
    request = DescribeGroupsRequest(groups=list(names), include_authorized_operations=operations)
    handler = DescribeGroups(groups(), groups.time_slicer)
    found: list[DescribedGroup] = groups.response(handler.handle(client(), header(version), request)).groups
    return found


def test_a_group_is_described_once(groups: FakeGroups) -> None:
    (found,) = describe(groups, 5, "g", "g")
    assert (found.error_code, found.group_state, len(found.members)) == (E.NONE, "Stable", 2)
    assert found.authorized_operations != GROUP_BITS
    (found,) = describe(groups, 5, "g", operations=True)
    assert found.authorized_operations == GROUP_BITS


@pytest.mark.parametrize(
    ("version", "error", "text"), [(5, E.NONE, None), (6, E.GROUP_ID_NOT_FOUND, "Group x not found.")]
)
def test_an_unknown_group_is_dead(
    groups: FakeGroups, version: int, error: ErrorCode, text: str | None
) -> None:
    (found,) = describe(groups, version, "x")
    assert (found.error_code, found.group_state, found.error_message) == (error, "Dead", text)


def test_a_group_that_others_coordinate_is_not_described(groups: FakeGroups) -> None:
    groups.error = E.NOT_COORDINATOR
    (found,) = describe(groups, 6, "g", operations=True)
    assert (found.group_id, found.error_code, found.members) == ("g", E.NOT_COORDINATOR, [])
    assert found.authorized_operations != GROUP_BITS


def list_groups(groups: FakeGroups, **filters: list[str]) -> Any:
    return ListGroups(groups()).handle(client(), header(5), ListGroupsRequest(**filters))


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({}, ["g"]),
        ({"states_filter": [" stable"]}, ["g"]),
        ({"states_filter": ["Empty", "Bogus"]}, []),
        ({"types_filter": ["CLASSIC"]}, ["g"]),
        ({"types_filter": ["consumer"]}, []),
        ({"states_filter": ["Empty"], "types_filter": ["classic"]}, []),
        ({"states_filter": ["Stable"], "types_filter": ["consumer", "classic"]}, ["g"]),
    ],
)
def test_filters_of_a_list(groups: FakeGroups, filters: dict[str, list[str]], expected: list[str]) -> None:
    response = list_groups(groups, **filters)
    assert (response.error_code, [each.group_id for each in response.groups]) == (E.NONE, expected)


def test_where_not_all_groups_are_known_none_is_listed(groups: FakeGroups) -> None:
    groups.error = E.COORDINATOR_NOT_AVAILABLE
    response = list_groups(groups)
    assert (response.error_code, response.groups) == (E.COORDINATOR_NOT_AVAILABLE, [])


def delete(groups: FakeGroups, *names: str) -> dict[str, int]:
    handler = DeleteGroups(groups(), groups.time_slicer)
    request = DeleteGroupsRequest(groups_names=list(names))
    response: DeleteGroupsResponse = groups.response(handler.handle(client(), header(2), request))
    return {each.group_id: each.error_code for each in response.results}


def test_only_groups_without_members_are_deleted(groups: FakeGroups) -> None:
    assert delete(groups, "g", "x", "g") == {"g": E.NON_EMPTY_GROUP, "x": E.GROUP_ID_NOT_FOUND}
    described = groups.world.coordinator.describe("g")
    assert described is not None
    groups.world.leave(*[each.member_id for each in described.members])
    assert delete(groups, "g") == {"g": E.NONE}
    assert groups.world.coordinator.describe("g") is None
    assert delete(groups) == {}


def test_the_response_to_a_deletion_waits_for_the_commit(groups: FakeGroups) -> None:
    described = groups.world.coordinator.describe("g")
    assert described is not None
    groups.world.leave(*[each.member_id for each in described.members])
    groups.world.store.at_once = False
    handler = DeleteGroups(groups(), groups.time_slicer)
    request = DeleteGroupsRequest(groups_names=["g", "x"])
    answer: Any = handler.handle(client(), header(2), request)
    groups.world.loop.turn()
    assert not answer.done
    groups.world.store.commit(E.NOT_COORDINATOR)
    codes = [each.error_code for each in groups.response(answer).results]
    assert codes == [E.NOT_COORDINATOR, E.GROUP_ID_NOT_FOUND]


def test_groups_that_others_coordinate_are_not_deleted(groups: FakeGroups) -> None:
    groups.error = E.NOT_COORDINATOR
    assert delete(groups, "g", "h") == {"g": E.NOT_COORDINATOR, "h": E.NOT_COORDINATOR}
