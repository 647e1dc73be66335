"""Mistakes for the campaign of the group protocols: each breaks one rule in the answers of Lockstep.

Owns: one function per rule, which changes an answer where the rule applies, and says whether it did. They are
applied between Lockstep and the member, so later requests follow from the mistake, as a client's would.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from tests.campaigns.group_protocol_answers import Fields

Rule = Callable[[str, Fields, Fields], bool]
"""Of an API, a request and its answer: is this one changed?"""
HEARTBEAT: Final = "consumer_group_heartbeat"


class Mistake:
    """A rule with a count of the answers it changed."""

    def __init__(self, rule: Rule) -> None:
        self._rule = rule
        self.made = 0

    def __call__(self, api: str, request: Fields, answer: Fields) -> None:
        self.made += self._rule(api, request, answer)


def _first_epoch(api: str, request: Fields, answer: Fields) -> bool:
    """A1: the first member of a group with topics gets epoch 2."""
    is_first = api == HEARTBEAT and request["member_epoch"] == 0 and answer["member_epoch"] == 2
    if is_first:
        answer["member_epoch"] = 1
    return is_first


def _instead(api: str, code: int, other: int) -> Rule:
    """An error of this API with another code."""

    def rule(asked: str, request: Fields, answer: Fields) -> bool:
        found = [each for each in _parts(answer) if each.get("error_code") == code] if asked == api else []
        for each in found:
            each["error_code"] = other
        return bool(found)

    return rule


def _parts(answer: Fields) -> list[Fields]:
    """The answer and all structures in it."""
    found = [answer]
    for value in answer.values():
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, dict):
                found += _parts(each)
    return found


def _null_when_unchanged(api: str, request: Fields, answer: Fields) -> bool:
    """3: a heartbeat that changes nothing has a null assignment."""
    applies = (
        api == HEARTBEAT
        and not answer["error_code"]
        and request["member_epoch"] > 0
        and answer["assignment"] is None
    )
    if applies:
        answer["assignment"] = {"topic_partitions": []}
    return applies


def _not_null_when_full(api: str, request: Fields, answer: Fields) -> bool:
    """3: a full heartbeat and a join have an assignment."""
    applies = api == HEARTBEAT and request["rebalance_timeout"] > 0 and answer["assignment"] is not None
    if applies:
        answer["assignment"] = None
    return applies


def _one_partition_less(api: str, request: Fields, answer: Fields) -> bool:
    """An assignment is whole."""
    if api != HEARTBEAT or not answer["assignment"] or not answer["assignment"]["topic_partitions"]:
        return False
    answer["assignment"]["topic_partitions"][0]["partitions"].pop()
    return True


def _of_heartbeats(name: str, add: int) -> Rule:
    def rule(api: str, request: Fields, answer: Fields) -> bool:
        applies = api == HEARTBEAT and not answer["error_code"] and request["member_epoch"] > 0
        if applies:
            answer[name] += add
        return applies

    return rule


def _of_groups(api: str, name: str, change: Callable[[Fields], object]) -> Rule:
    """A field of the groups in an answer."""

    def rule(asked: str, request: Fields, answer: Fields) -> bool:
        listed = answer["groups"] if asked == api else []
        groups = [each for each in listed if name in each and not each.get("error_code")]
        changed = False
        for each in groups:
            new = change(each)
            changed |= new != each[name]
            each[name] = new
        return changed

    return rule


def _of_members(name: str, value: object) -> Rule:
    """A field of described members."""

    def rule(api: str, request: Fields, answer: Fields) -> bool:
        members = [each for each in _parts(answer) if name in each and "rack_id" in each]
        changed = [each for each in members if each[name] != value]
        for each in changed:
            each[name] = value
        return api == "consumer_group_describe" and bool(changed)

    return rule


def _leads(api: str, request: Fields, answer: Fields) -> bool:
    """11: a classic member in a consumer group is told no leader."""
    applies = api == "join_group" and not answer["error_code"] and answer["leader"] == ""
    if applies:
        answer["leader"] = answer["member_id"]
    return applies


def _is_assigned_nothing(api: str, request: Fields, answer: Fields) -> bool:
    applies = api == "sync_group" and not answer["error_code"] and bool(answer["assignment"])
    if applies:
        answer["assignment"] = b""
    return applies


_DESCRIBE = "consumer_group_describe"
PLANTS: Final[Mapping[str, Rule]] = {
    "the first epoch is 1": _first_epoch,
    "an unchanged assignment is told": _null_when_unchanged,
    "a full heartbeat is told none": _not_null_when_full,
    "a partition is left out": _one_partition_less,
    "the epoch is one ahead": _of_heartbeats("member_epoch", 1),
    "the interval is another": _of_heartbeats("heartbeat_interval", 1),
    "a fenced epoch is an unknown member": _instead(HEARTBEAT, 110, 25),
    "an unknown member is fenced": _instead(HEARTBEAT, 25, 110),
    "an unknown group is an unknown member": _instead(HEARTBEAT, 69, 25),
    "a bad request is served": _instead(HEARTBEAT, 42, 0),
    "an unknown assignor is served": _instead(HEARTBEAT, 112, 0),
    "a bad regex is a bad request": _instead(HEARTBEAT, 128, 42),
    "an instance in use is an unknown member": _instead(HEARTBEAT, 111, 25),
    "a fenced instance is an unknown member": _instead(HEARTBEAT, 82, 25),
    "a stale epoch commits": _instead("offset_commit", 113, 0),
    "an unknown member commits": _instead("offset_commit", 25, 0),
    "version 8 commits": _instead("offset_commit", 35, 0),
    "a missing topic commits": _instead("offset_commit", 3, 0),
    "a stale epoch fetches": _instead("offset_fetch", 113, 0),
    "an unknown member fetches": _instead("offset_fetch", 25, 0),
    "a group with members is deleted": _instead("delete_groups", 68, 0),
    "a topic in use loses offsets": _instead("offset_delete", 86, 0),
    "an unknown group is described": _instead(_DESCRIBE, 69, 0),
    "a setting out of its range is taken": _instead("incremental_alter_configs", 40, 0),
    "a group is always stable": _of_groups(_DESCRIBE, "group_state", lambda _: "Stable"),
    "the assignment is of the group's epoch": _of_groups(
        _DESCRIBE, "assignment_epoch", lambda each: each["group_epoch"]
    ),
    "the group's epoch is one ahead": _of_groups(
        _DESCRIBE, "group_epoch", lambda each: each["group_epoch"] + 1
    ),
    "every group is uniform": _of_groups(_DESCRIBE, "assignor_name", lambda _: "uniform"),
    "every group is listed as classic": _of_groups("list_groups", "group_type", lambda _: "classic"),
    "a target is not described": _of_members("target_assignment", {"topic_partitions": []}),
    "no regex is described": _of_members("subscribed_topic_regex", None),
    "no rack is described": _of_members("rack_id", None),
    "no instance is described": _of_members("instance_id", None),
}
OF_MIXED_GROUPS: Final[Mapping[str, Rule]] = {
    "a rebalance is not told to a classic member": _instead("heartbeat", 27, 0),
    "an old generation is served": _instead("heartbeat", 22, 0),
    "another protocol type is served": _instead("join_group", 23, 0),
    "every member is new": _of_members("member_type", 1),
    "a classic member leads": _leads,
    "a classic member is assigned nothing": _is_assigned_nothing,
}
"""Of groups with classic members, too."""
