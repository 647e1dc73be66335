"""Members of classic groups by hand: what no client library shows. Expected is what Kafka 4.4.0 does."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from compat_tests.raw import Answer, RawConnection
from compat_tests.until import until

COORDINATOR_ERRORS = (14, 15, 16)
ILLEGAL_GENERATION = 22
INCONSISTENT_GROUP_PROTOCOL = 23
INVALID_GROUP_ID = 24
UNKNOWN_MEMBER_ID = 25
INVALID_SESSION_TIMEOUT = 26
REBALANCE_IN_PROGRESS = 27
NON_EMPTY_GROUP = 68
GROUP_ID_NOT_FOUND = 69
MEMBER_ID_REQUIRED = 79
FENCED_INSTANCE_ID = 82

NO_PROTOCOL: Any = {"protocol_type": None, "protocol_name": None}
AREA = "Group membership on the wire"


class _Group:
    """One group; short ways to ask about it."""

    def __init__(self, raw: RawConnection, name: str) -> None:
        self.raw = raw
        self.name = name
        for _ in range(100):  # Kafka makes its topic of offsets when it is first asked
            answer = raw.call("find_coordinator", 4, key_type=0, coordinator_keys=[name])
            if answer["coordinators"][0]["error_code"] == 0:
                break
            time.sleep(0.1)

    def join_fields(self, member: str = "", **more: Any) -> dict[str, Any]:
        return {
            "group_id": self.name,
            "session_timeout": 10_000,
            "rebalance_timeout": 10_000,
            "member_id": member,
            "group_instance_id": None,
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": b"meta"}],
        } | more

    def ask_join(self, member: str = "", version: int = 9, **more: Any) -> Answer:
        for _ in range(100):
            answer = self.raw.call("join_group", version, **self.join_fields(member, **more))
            if answer["error_code"] not in COORDINATOR_ERRORS:
                return answer
            time.sleep(0.1)
        return answer

    def join(self, version: int = 9, **more: Any) -> Answer:
        answer = self.ask_join("", version, **more)
        if answer["error_code"] == MEMBER_ID_REQUIRED:
            answer = self.ask_join(answer["member_id"], version, **more)
        assert answer["error_code"] == 0, answer
        return answer

    def sync(self, joined: Answer, version: int = 5, **more: Any) -> Answer:
        own = {"member_id": joined["member_id"], "assignment": b"part"}
        fields = {
            "group_id": self.name,
            "generation_id": joined["generation_id"],
            "member_id": joined["member_id"],
            "group_instance_id": None,
            "protocol_type": "consumer",
            "protocol_name": "range",
            "assignments": [own] if joined["leader"] == joined["member_id"] else [],
        }
        return self.raw.call("sync_group", version, **fields | more)

    def stable(self, **more: Any) -> Answer:
        joined = self.join(**more)
        assert self.sync(joined)["error_code"] == 0
        return joined

    def heartbeat(self, member: str, generation: int, instance: str | None = None) -> int:
        answer = self.raw.call(
            "heartbeat",
            4,
            group_id=self.name,
            generation_id=generation,
            member_id=member,
            group_instance_id=instance,
        )
        return int(answer["error_code"])

    def leave(self, *members: tuple[str, str | None]) -> Answer:
        leaving = [{"member_id": member, "group_instance_id": instance} for member, instance in members]
        return self.raw.call("leave_group", 5, group_id=self.name, members=leaving)

    def describe(self, version: int = 6) -> Answer:
        answer = self.raw.call("describe_groups", version, groups=[self.name])
        found: Answer = answer["groups"][0]
        return found


@pytest.fixture
def group(raw: RawConnection, unused_name: Callable[[], str]) -> _Group:
    return _Group(raw, unused_name())


@pytest.mark.case(AREA, "JoinGroup v{version}: a member is given an id that begins with its client id")
@pytest.mark.parametrize("version", [0, 3, 4, 6, 7, 9])
def test_member_ids(group: _Group, version: int) -> None:
    answer = group.ask_join(version=version)
    assert answer["member_id"].startswith("compat-tests-")
    assert len(answer["member_id"]) == len("compat-tests-") + 36
    if version >= 4:
        assert (answer["error_code"], answer["generation_id"]) == (MEMBER_ID_REQUIRED, -1)
        assert answer["protocol_name"] == (None if version >= 7 else "")
        answer = group.ask_join(answer["member_id"], version)
    assert (answer["error_code"], answer["generation_id"]) == (0, 1)
    assert answer["leader"] == answer["member_id"]
    assert [each["metadata"] for each in answer["members"]] == [b"meta"]


@pytest.mark.case(AREA, "JoinGroup: what is refused, and how")
def test_join_refused(group: _Group) -> None:
    def refused(member: str = "", **more: Any) -> int:
        answer = group.ask_join(member, **more)
        assert answer["member_id"] == member
        return int(answer["error_code"])

    assert refused(group_id="") == INVALID_GROUP_ID
    assert refused(session_timeout=5_999) == INVALID_SESSION_TIMEOUT
    assert refused(session_timeout=1_800_001) == INVALID_SESSION_TIMEOUT
    assert refused("unknown") == UNKNOWN_MEMBER_ID
    assert refused(protocols=[]) == INCONSISTENT_GROUP_PROTOCOL
    assert refused(protocol_type="") == INCONSISTENT_GROUP_PROTOCOL
    group.stable()
    assert refused(protocol_type="connect") == INCONSISTENT_GROUP_PROTOCOL
    assert refused(protocols=[{"name": "other", "metadata": b""}]) == INCONSISTENT_GROUP_PROTOCOL
    assert refused("unknown") == UNKNOWN_MEMBER_ID
    assert refused("unknown", group_instance_id="i") == UNKNOWN_MEMBER_ID


@pytest.mark.case(AREA, "SyncGroup: what is refused, and how")
def test_sync_refused(group: _Group) -> None:
    joined = group.join()

    def refused(**more: Any) -> int:
        return int(group.sync(joined, **more)["error_code"])

    assert refused(group_id="") == INVALID_GROUP_ID
    assert refused(group_id="no such group") == UNKNOWN_MEMBER_ID
    assert refused(member_id="unknown") == UNKNOWN_MEMBER_ID
    assert refused(group_instance_id="unknown") == UNKNOWN_MEMBER_ID
    assert refused(generation_id=7) == ILLEGAL_GENERATION
    assert refused(protocol_type="connect") == INCONSISTENT_GROUP_PROTOCOL
    assert refused(protocol_name="other") == INCONSISTENT_GROUP_PROTOCOL
    assert refused(**NO_PROTOCOL) == INCONSISTENT_GROUP_PROTOCOL
    assert group.sync(joined, 4)["error_code"] == 0


@pytest.mark.case(AREA, "Heartbeat: what is refused, and how")
def test_heartbeats(group: _Group) -> None:
    assert group.heartbeat("m", 1) == UNKNOWN_MEMBER_ID
    joined = group.join()
    member = joined["member_id"]
    assert group.heartbeat(member, 1) == 0, "before the assignment, too"
    group.sync(joined)
    assert group.heartbeat(member, 1) == 0
    assert group.heartbeat(member, 2) == ILLEGAL_GENERATION
    assert group.heartbeat(member, 0) == ILLEGAL_GENERATION
    assert group.heartbeat(member, 1, "i") == UNKNOWN_MEMBER_ID
    assert group.heartbeat("unknown", 1) == UNKNOWN_MEMBER_ID
    handed_out = group.ask_join()["member_id"]
    assert group.heartbeat(handed_out, 1) == UNKNOWN_MEMBER_ID


@pytest.mark.case(AREA, "the leader of a stable group joins again: a new generation; a follower: the same")
def test_joining_again(group: _Group, raw_2: RawConnection) -> None:
    leader = group.stable()
    raw_2.send("join_group", 3, **group.join_fields())
    while len(group.describe()["members"]) < 2:
        time.sleep(0.02)
    assert group.heartbeat(leader["member_id"], 1) == REBALANCE_IN_PROGRESS
    assert group.sync(leader)["error_code"] == REBALANCE_IN_PROGRESS
    again = group.ask_join(leader["member_id"])
    follower = raw_2.receive()
    assert (again["generation_id"], follower["generation_id"]) == (2, 2)
    assert again["leader"] == follower["leader"] == leader["member_id"]
    assert (len(again["members"]), follower["members"]) == (2, [])
    assert group.ask_join(leader["member_id"])["generation_id"] == 2, "before the assignment"
    assert group.sync(again)["error_code"] == 0
    same = group.ask_join(follower["member_id"])
    assert (same["error_code"], same["generation_id"], same["members"]) == (0, 2, [])
    assert group.sync(same)["assignment"] == b"", "the leader named it not"
    assert group.describe()["group_state"] == "Stable"


@pytest.mark.case(AREA, "a static member comes back without a rebalance, its old id is fenced (v{version})")
@pytest.mark.parametrize("version", [5, 8, 9])
def test_static_members(group: _Group, version: int) -> None:
    first = group.join(version, group_instance_id="i")
    old = first["member_id"]
    assert old.startswith("i-")
    group.sync(first, group_instance_id="i")
    back = group.ask_join("", version, group_instance_id="i")
    assert (back["error_code"], back["generation_id"]) == (0, 1)
    new = back["member_id"]
    assert new != old
    if version >= 9:
        assert (back["leader"], back["skip_assignment"], len(back["members"])) == (new, True, 1)
    else:
        assert (back["leader"], back["members"]) == (old, []), "so that it follows"
    assert group.sync(back, group_instance_id="i", assignments=[])["assignment"] == b"part"
    assert group.heartbeat(old, 1, "i") == FENCED_INSTANCE_ID
    assert group.heartbeat(old, 1) == UNKNOWN_MEMBER_ID
    assert group.sync(first, group_instance_id="i")["error_code"] == FENCED_INSTANCE_ID
    fenced = group.ask_join(old, group_instance_id="i")
    assert (fenced["error_code"], fenced["member_id"]) == (FENCED_INSTANCE_ID, old)
    left = group.leave((old, "i"), ("", "i"), ("", "other"), ("unknown", None))
    assert [each["error_code"] for each in left["members"]] == [
        FENCED_INSTANCE_ID,
        0,
        UNKNOWN_MEMBER_ID,
        UNKNOWN_MEMBER_ID,
    ]


@pytest.mark.case(AREA, "LeaveGroup v{version}: one member, or several with an answer for each")
@pytest.mark.parametrize("version", [0, 2, 3, 5])
def test_leaving(group: _Group, version: int) -> None:
    member = group.stable()["member_id"]

    def leave(name: str, who: str) -> list[int]:
        if version < 3:
            answer = group.raw.call("leave_group", version, group_id=name, member_id=who)
            return [answer["error_code"]]
        leaving = [{"member_id": who, "group_instance_id": None}]
        answer = group.raw.call("leave_group", version, group_id=name, members=leaving)
        assert answer["error_code"] == 0
        return [each["error_code"] for each in answer["members"]]

    assert leave("no such group", "m") == [UNKNOWN_MEMBER_ID]
    assert leave(group.name, "unknown") == [UNKNOWN_MEMBER_ID]
    assert leave(group.name, member) == [0]
    assert group.describe()["group_state"] == "Empty"
    assert group.describe()["protocol_type"] == "consumer"
    assert leave(group.name, member) == [UNKNOWN_MEMBER_ID]
    assert group.join()["generation_id"] == 3


@pytest.mark.case(AREA, "DescribeGroups: metadata of a stable group only; no such group is Dead, or an error")
def test_describe(group: _Group) -> None:
    missing = group.describe(5)
    assert (missing["error_code"], missing["group_state"]) == (0, "Dead")
    missing = group.describe(6)
    assert (missing["error_code"], missing["group_state"]) == (GROUP_ID_NOT_FOUND, "Dead")
    assert missing["error_message"] == f"Group {group.name} not found."
    joined = group.join()
    described = group.describe()
    assert (described["group_state"], described["protocol_data"]) == ("CompletingRebalance", "")
    (member,) = described["members"]
    assert (member["member_metadata"], member["member_assignment"]) == (b"", b"")
    group.sync(joined)
    described = group.describe()
    assert (described["group_state"], described["protocol_data"]) == ("Stable", "range")
    (member,) = described["members"]
    assert (member["member_metadata"], member["member_assignment"]) == (b"meta", b"part")
    assert (member["client_id"], member["client_host"]) == ("compat-tests", "/127.0.0.1")
    asked = {"groups": [group.name], "include_authorized_operations": True}
    (described,) = group.raw.call("describe_groups", 6, **asked)["groups"]
    assert described["authorized_operations"] == 3400


@pytest.mark.case(AREA, "ListGroups: by state and by type, whatever the case")
def test_list(group: _Group) -> None:
    def listed(states: list[str], types: list[str]) -> list[Answer]:
        answer = group.raw.call("list_groups", 5, states_filter=states, types_filter=types)
        return [each for each in answer["groups"] if each["group_id"] == group.name]

    group.stable()
    (found,) = listed([], [])
    assert (found["protocol_type"], found["group_state"]) == ("consumer", "Stable")
    assert found["group_type"] == "classic"
    assert listed(["sTABLE"], ["CLASSIC"]) == [found]
    assert listed(["Empty", "Stable"], ["classic", "consumer"]) == [found]
    assert listed(["Empty"], []) == listed([], ["consumer"]) == listed(["nonsense"], []) == []


@pytest.mark.case(AREA, "DeleteGroups v{version}")
@pytest.mark.parametrize("version", range(4))
def test_delete(group: _Group, version: int) -> None:
    """A group with members is refused, and so is an unknown one; version 3 has a text, which is null."""

    def delete() -> int:
        (result,) = group.raw.call("delete_groups", version, groups_names=[group.name])["results"]
        assert result.get("error_message") is None
        return int(result["error_code"])

    assert delete() == GROUP_ID_NOT_FOUND
    member = group.stable()["member_id"]
    assert delete() == NON_EMPTY_GROUP
    group.leave((member, None))
    assert delete() == 0
    assert delete() == GROUP_ID_NOT_FOUND
    assert group.join()["generation_id"] == 1


@pytest.mark.case(AREA, "each member votes; the protocol all know with the most votes wins")
def test_voting(group: _Group, raw_2: RawConnection) -> None:
    both = [{"name": "range", "metadata": b"r"}, {"name": "sticky", "metadata": b"s"}]
    first = group.join(protocols=[{"name": "mine", "metadata": b""}, *both])
    assert first["protocol_name"] == "mine"
    raw_2.send("join_group", 3, **group.join_fields(protocols=both))
    while len(group.describe()["members"]) < 2:
        time.sleep(0.02)
    again = group.ask_join(first["member_id"], protocols=[{"name": "mine", "metadata": b""}, *both])
    assert (again["protocol_name"], raw_2.receive()["protocol_name"]) == ("range", "range")
    assert [each["metadata"] for each in again["members"]] == [b"r", b"r"]


@pytest.mark.case(AREA, "a member that sends no heartbeats is missed after its session")
def test_session(group: _Group) -> None:
    member = group.stable(session_timeout=6_000)["member_id"]
    deadline = time.monotonic() + 4
    while time.monotonic() < deadline:
        sent = time.monotonic()
        assert group.heartbeat(member, 1) == 0
        time.sleep(0.5)
    while group.describe()["group_state"] == "Stable":
        assert time.monotonic() < deadline + 30, "it is not missed"
        time.sleep(0.02)
    assert time.monotonic() - sent > 5.9, "not before its session is over"
    until("Empty", lambda: group.describe()["group_state"])
