"""`lockstep cluster`: against a node alone, and what it shows of and says about clusters of several."""

from __future__ import annotations

import json
from typing import Any

import pytest

from lockstep.cli import main
from lockstep.kafka_client import cluster
from tests.lockstep.conftest import Run

MEMBERS: list[dict[str, Any]] = [
    {"node": 1, "member": 1, "match_index": 9, "lag": 0, "in_sync": True},
    {"node": 2, "member": 2, "match_index": 4, "lag": 5, "in_sync": False},
]
UNKNOWN: dict[str, Any] = {"node": 3, "member": 3, "match_index": None, "lag": None, "in_sync": False}
NODE: dict[str, Any] = {
    "node": 1,
    "alive": True,
    "registered": True,
    "listeners": {"PLAINTEXT": "here:9092"},
    "peer": "here:19092",
    "rack": "r1",
    "controller": True,
    "metadata": "voter",
}
GROUP: dict[str, Any] = {
    "group": 0,
    "preferred_leader": 1,
    "placed": [1, 2],
    "leader": 1,
    "term": 3,
    "commit_index": 9,
    "last_index": 9,
    "changing": False,
    "voters": MEMBERS,
    "learners": [],
}
STATUS: dict[str, Any] = {
    "cluster_id": "abc",
    "answered_by": 1,
    "controller": 1,
    "healthy": False,
    "nodes": [NODE, {**NODE, "node": 2, "alive": False, "rack": None, "metadata": "unknown"}],
    "groups": [
        GROUP,
        {**GROUP, "group": 1, "leader": -1, "commit_index": None, "voters": None, "learners": None},
    ],
}


def answers(monkeypatch: pytest.MonkeyPatch, *found: dict[str, Any]) -> list[dict[str, Any]]:
    """Let a cluster answer so, the last again and again; what it was asked."""
    asked: list[dict[str, Any]] = []

    async def ask(client: object, question: dict[str, Any]) -> dict[str, Any]:
        asked.append(question)
        return found[min(len(asked), len(found)) - 1]

    monkeypatch.setattr(cluster, "_send_command", ask)
    monkeypatch.setattr(cluster, "POLL_SECONDS", 0.01)
    return asked


def test_status_of_a_node_alone(command: Run) -> None:
    done = command("cluster", "status")
    assert done.status == 0, done
    assert "controller" in done.out
    (line,) = command("cluster", "status", "--json").out.splitlines()
    found = json.loads(line)
    assert found["healthy"]
    assert [each["leader"] for each in found["groups"]] == [1, 1]


@pytest.mark.parametrize("words", [("add", "2"), ("remove", "1"), ("transfer", "0", "1")])
def test_a_node_alone_refuses_the_rest(command: Run, words: tuple[str, ...]) -> None:
    done = command("cluster", *words)
    assert (done.status, done.out) == (1, "")
    assert "this node is alone and stays so" in done.err


def test_a_status_that_is_not_well(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answers(monkeypatch, STATUS)
    assert main(["cluster", "status", "-b", "nowhere:1"]) == 1
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["1", "yes", "here:9092", "here:19092", "r1", "controller", "0", "1", "0"] in lines
    assert ["2", "no", "here:9092", "here:19092", "unknown", "0", "1", "-"] in lines
    assert ["0", "1", "1", "3", "9", "1", "2(lacks", "5)"] in lines
    assert ["1", "none", "1", "3", "unknown", "unknown", "unknown"] in lines


def test_a_cluster_of_mixed_builds_is_visible(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    builds = ("0.2.0 (commit a)", "0.2.0 (commit b)", None)
    nodes = [{**NODE, "node": node, "build": build} for node, build in enumerate(builds, 1)]
    groups = [{**GROUP, "voters": [{**each, "in_sync": True} for each in MEMBERS]}]
    answers(monkeypatch, {**STATUS, "healthy": True, "nodes": nodes, "groups": groups})
    assert main(["cluster", "status"]) == 0
    assert capsys.readouterr().out.endswith(
        "\nthe nodes run different builds:\n  node 1 0.2.0 (commit a)\n  node 2 0.2.0 (commit b)\n"
        "  node 3 an unknown build\n"
    )
    answers(monkeypatch, {**STATUS, "healthy": True, "nodes": nodes[:1], "groups": groups})
    assert main(["cluster", "status"]) == 0
    assert "different builds" not in capsys.readouterr().out


def test_the_metadata_version_and_what_waits_for_which_nodes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    groups = [{**GROUP, "voters": [{**each, "in_sync": True} for each in MEMBERS]}]
    waiting: dict[str, object] = {
        "version": 4,
        "latest": 9,
        "features_to_come": ["ACLs", "client quotas"],
        "waits_for": [{"node": 2, "supports": 4}, {"node": 3, "supports": None}],
    }
    done: dict[str, object] = {"version": 9, "latest": 9, "features_to_come": [], "waits_for": []}
    later = waiting | {"features_to_come": []}
    rejecting = done | {"waits_for": [{"node": 3, "supports": 4}]}
    status = {**STATUS, "healthy": True, "nodes": [NODE], "groups": groups}
    shown = []
    for each in (waiting, later, done, None, rejecting):
        answers(monkeypatch, status | ({"metadata_version": each} if each else {}))
        assert main(["cluster", "status"]) == 0
        shown.append(capsys.readouterr().out)
    assert shown[0].endswith(
        "\nmetadata version 4\nversion 9 (ACLs, client quotas) comes once every node supports it; these do "
        "not:\n  node 2 supports up to 4\n  node 3 is not connected\n"
    )
    assert "\nversion 9 comes once every node" in shown[1]
    assert shown[2].endswith("\nmetadata version 9\n")
    assert "metadata version" not in shown[3]
    assert shown[4].endswith("\nmetadata version 9\n  node 3 supports up to 4: the others reject it\n")


def test_a_full_disk_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    nodes = [{**NODE, "disk_full": False}, {**NODE, "node": 2, "disk_full": True}, {**NODE, "node": 3}]
    groups = [{**GROUP, "voters": [{**each, "in_sync": True} for each in MEMBERS]}]
    asked = answers(monkeypatch, {**STATUS, "nodes": nodes, "groups": groups})
    assert main(["cluster", "status"]) == 1
    assert len(asked) == 1, "a full disk does not pass while somebody waits"
    out = capsys.readouterr().out
    assert [line.split()[:3] for line in out.splitlines() if line[:1] in ("1", "2", "3")] == [
        ["1", "yes", "here:9092"],
        ["2", "disk", "full"],
        ["3", "yes", "here:9092"],
    ]
    assert out.endswith("\nno room left on the disk of node 2: what it leads takes no writes\n")


def test_a_node_whose_writes_fail_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    nodes = [{**NODE, "disk_full": False}, {**NODE, "node": 2, "disk_full": False, "write_failed": True}]
    groups = [{**GROUP, "voters": [{**each, "in_sync": True} for each in MEMBERS]}]
    requests = answers(monkeypatch, {**STATUS, "nodes": nodes, "groups": groups})
    assert main(["cluster", "status"]) == 1
    assert len(requests) == 1, "it does not pass while somebody waits"
    out = capsys.readouterr().out
    assert ["2", "writes", "fail"] in [line.split()[:3] for line in out.splitlines()]
    assert "no room left" not in out
    assert out.endswith("\nthe log of node 2 cannot be written; the node's own log has the error\n")


def test_missing_records_are_named_with_what_to_do(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    place = {"node": 2, "group": 1, "segment": 0, "topic": "t", "partition": 0}
    missing = {**place, "first_offset": 0, "last_offset": 5, "problem": "gone", "given_up": False}
    copies = {"intact_on": [1], "unknown_on": []}
    answers(monkeypatch, {**STATUS, "healthy": False, "damage": [{**missing, **copies}]})
    assert main(["cluster", "status"]) == 1
    assert (
        "node 2: t-0: offsets 0 to 5 are missing (log group 1); node 1 can have them: node 2 gets them back "
        "when it starts with an empty directory\n"
    ) in capsys.readouterr().out
    answers(monkeypatch, {**STATUS, "healthy": False, "damage": [missing]})  # an earlier version's
    assert main(["cluster", "status"]) == 1
    assert "node 2: t-0: offsets 0 to 5 are missing (log group 1)\n" in capsys.readouterr().out


def test_a_node_without_a_damage_report_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answers(monkeypatch, {**STATUS, "damage_unknown": [{"node": 3, "reason": "no response within 1 s"}]})
    assert main(["cluster", "status"]) == 1
    said = "\nnode 3 did not report the damage on its disk: no response within 1 s\n"
    assert said in capsys.readouterr().out


def test_unreached_nodes_are_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    unreached = [{"node": 2, "why": "at there:1 (connection refused)"}, {"node": 3, "why": "at there:2 (no)"}]
    lacking = {"reached": 1, "voters": [1, 2, 3], "unreached": unreached}
    answers(monkeypatch, {**STATUS, "waits_for_majority": lacking})
    assert main(["cluster", "status"]) == 1
    out = capsys.readouterr().out
    assert "node 1 reaches 1 of 3 nodes that elect the controller, too few; out of reach:" in out
    assert "  node 2 at there:1 (connection refused)\n  node 3 at there:2 (no)\n" in out


def test_a_lack_that_nobody_knows_is_no_number(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    silent = {**MEMBERS[1], "lag": 0}
    answers(monkeypatch, {**STATUS, "groups": [{**GROUP, "voters": [MEMBERS[0], silent, UNKNOWN]}]})
    assert main(["cluster", "status"]) == 1
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["0", "1", "1", "3", "9", "1", "2(silent)", "3(unknown)"] in lines


def test_a_lack_that_does_not_last_is_none(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    well = [{**each, "in_sync": True} for each in MEMBERS]
    other = [{**each, "in_sync": not each["in_sync"]} for each in MEMBERS]

    def status(*voters: Any, alive: bool = True) -> dict[str, Any]:
        groups = [{**GROUP, "group": number, "voters": each} for number, each in enumerate(voters)]
        return {**STATUS, "nodes": [NODE, {**NODE, "node": 2, "alive": alive}], "groups": groups}

    monkeypatch.setattr(cluster, "OUT_OF_SYNC_GRACE_SECONDS", 0.05)
    for found, looks, code in (
        ([status(MEMBERS, well), status(well, MEMBERS)], 2, 0),  # now this group, now that one
        ([status(None), status(well)], 2, 0),
        ([status(MEMBERS), status(other)], 2, 0),
        ([status(MEMBERS, alive=False)], 1, 1),  # who is not there lags for certain
        ([{**status(MEMBERS), "groups": []}], 1, 1),
    ):
        asked = answers(monkeypatch, *found)
        assert main(["cluster", "status"]) == code, found
        assert len(asked) == looks
        assert ("not every log group" in capsys.readouterr().out) == bool(code)
    for lasting in (
        [status(well, MEMBERS)],
        [status(None, well)],
        [status(None), status(MEMBERS)],  # what was not known of may have lacked as much
        [status(MEMBERS), status(None)],
    ):
        asked = answers(monkeypatch, *lasting)
        assert main(["cluster", "status"]) == 1
        assert len(asked) > 2


def test_a_change_is_polled_until_it_is_done(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = answers(monkeypatch, {"done": False, "waiting": [1]}, {"done": True, "groups": [0, 1]})
    assert main(["cluster", "add", "4"]) == 0
    assert asked == [{"do": "add", "node": 4}] * 2
    assert capsys.readouterr().out == "node 4 has caught up; it holds log groups 0, 1\n"
    assert main(["cluster", "transfer", "1", "4", "--json"]) == 0
    assert asked[-1] == {"do": "transfer", "group": 1, "node": 4}
    assert json.loads(capsys.readouterr().out) == {"done": True, "node": 4}


def test_a_slow_change_reports_what_is_pending(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cluster, "PROGRESS_DELAY_SECONDS", 0.0)
    monkeypatch.setattr(cluster, "POLL_SECONDS", 0.01)
    waiting = [{"done": False, "waiting": numbers} for numbers in ([1, 3], [1, 3], [3])]
    answers(monkeypatch, *waiting, {"done": True, "groups": [0, 1, 3]})
    assert main(["cluster", "add", "4", "--json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["done"], "standard output has the answer alone"
    assert err == (
        "lockstep: node 4 has not caught up with log groups 1, 3; waiting\n"
        "lockstep: node 4 has not caught up with log group 3; waiting\n"
    )


def test_what_takes_too_long_goes_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answers(monkeypatch, {"done": False, "waiting": [1, 3]})
    assert main(["cluster", "remove", "4", "--wait", "0.05"]) == 1
    assert (
        "node 4 still has a part in log groups 1, 3 after 0.05 s; the change continues"
        in capsys.readouterr().err
    )


def test_the_exit_status_is_in_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["cluster", "status", "--help"])
    told = " ".join(capsys.readouterr().out.split())
    assert (
        "0 if every group has a leader, all its voters are in sync, every log can be written (no disk "
        "is full) and no record is damaged, 1 otherwise" in told
    )
