"""The harness itself: it must notice a broker that fails, dies or hangs; a table hides no failure."""

from __future__ import annotations

import gc
import itertools
import os
import resource
import signal
import socket
import sys
import textwrap
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from compat_tests import harness, kafka_jars, report
from compat_tests.harness import FAILED, LIMITED, PASSED, Outcome, load, save
from compat_tests.kafka_jars import ToolchainMissing
from compat_tests.line_driver import ANSWER_TIMEOUT_S, DriverFailed, LineDriver
from compat_tests.probe import HOST, answers, free_port, ports_of
from compat_tests.raw import Answer
from compat_tests.routed import RoutedConnection, joined
from compat_tests.targets import ROOT, LockstepTarget, TargetFailed
from conftest import LONG_SHARES, in_turns, share_of

_FAKE = """
    import signal, socket, struct, sys, time
    port = int(sys.argv[sys.argv.index("--listen") + 1].rpartition(":")[2])
    {before}
    server = socket.create_server(("127.0.0.1", port))
    while True:
        connection, _ = server.accept()
        with connection:
            if connection.recv(1000):
                answer = struct.pack(">iii", 1, {brokers}, 0)
                connection.sendall(struct.pack(">i", len(answer)) + answer)
"""


def _fake(tmp_path: Path, *, before: str = "", brokers: int = 1) -> list[str]:
    """A program that takes `lockstep serve`'s words and answers Metadata with so many brokers."""
    script = tmp_path / "fake.py"
    script.write_text(textwrap.dedent(_FAKE).format(before=before, brokers=brokers))
    return [sys.executable, str(script)]


def test_a_broker_that_answers_is_ready_and_ends_with_its_directory(tmp_path: Path) -> None:
    with LockstepTarget(command=_fake(tmp_path)) as target:
        assert answers(HOST, target.port, 1.0)
        assert target.rss_bytes() > 1 << 20
        directory, pid = target.directory, target.pid
        assert directory.is_dir()
    assert not directory.exists()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_restart_keeps_port_and_data(tmp_path: Path) -> None:
    with LockstepTarget(command=_fake(tmp_path)) as target:
        port, pid = target.port, target.pid
        target.data_dir.mkdir()
        target.kill9()
        assert (target.running, target.exit_code) == (False, -signal.SIGKILL)
        target.restart()
        assert target.port == port and target.pid != pid and target.data_dir.is_dir()
        assert target.stop() == -signal.SIGTERM


def test_one_that_ends_reports_the_reason(tmp_path: Path) -> None:
    target = LockstepTarget(command=_fake(tmp_path, before="sys.exit('no such option')"))
    with pytest.raises(TargetFailed, match=r"ended with 1 before it was ready(?s:.*)no such option"):
        target.start()
    target.close()


def test_one_that_has_no_live_broker_is_not_ready(tmp_path: Path) -> None:
    target = LockstepTarget(command=_fake(tmp_path, brokers=0), ready_timeout_s=0.6)
    with pytest.raises(TargetFailed, match="not ready after"):
        target.start()
    assert not target.running
    target.close()


def test_one_that_ignores_sigterm_is_killed_and_reported(tmp_path: Path) -> None:
    ignore = "signal.signal(signal.SIGTERM, signal.SIG_IGN)"
    with LockstepTarget(command=_fake(tmp_path, before=ignore)) as target:
        with pytest.raises(TargetFailed, match="did not stop within"):
            target.stop(timeout_s=0.3)
        assert target.exit_code == -signal.SIGKILL


def test_a_taken_port_is_left_to_its_owner(tmp_path: Path) -> None:
    with socket.create_server((HOST, 0)) as owner:
        taken: int = owner.getsockname()[1]
        target = LockstepTarget(command=_fake(tmp_path))
        target.port = taken
        try:
            target.start()
            assert target.port != taken, "another port was tried"
        finally:
            target.close()


def test_processes_of_one_run_take_no_port_of_each_other() -> None:
    shares = [ports_of(f"gw{number}") for number in range(8)]
    assert sum(map(len, shares)) == len({*itertools.chain(*shares)}) == len(ports_of(""))
    assert ports_of("gw9") == shares[1], "one that came in a place of another"


def test_a_port_does_not_come_again_soon() -> None:
    assert len({free_port() for _ in range(1000)}) == 1000


def test_a_free_port_can_be_bound() -> None:
    with socket.create_server((HOST, free_port())):
        pass


def test_nobody_answers_on_a_free_port() -> None:
    assert not answers(HOST, free_port(), 0.2)


def test_a_missing_tool_is_a_named_skip_and_a_failure_in_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str = "java") -> str:
        raise ToolchainMissing(f"{name} not found")

    monkeypatch.setattr(kafka_jars, "java_command", missing)
    monkeypatch.setenv("CI", "")
    with pytest.raises(pytest.skip.Exception, match="java not found"):
        kafka_jars.require_java()
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="CI must have it: java not found"):
        kafka_jars.require_java()


def test_the_version_of_java_is_read() -> None:
    assert kafka_jars.major_version('openjdk version "17.0.15" 2025-04-15\nOpenJDK Runtime') == 17
    assert kafka_jars.major_version('openjdk version "21-ea" 2023') == 21
    assert kafka_jars.major_version("javac 17.0.15") == 17
    assert kafka_jars.major_version('java version "1.8.0_392"') == 1
    assert kafka_jars.major_version("") == 0


def _outcomes() -> list[Outcome]:
    def one(case: str, client: str, target: str, result: str, reason: str = "") -> Outcome:
        return Outcome("Records", case, client, target, result, reason)

    return [
        one("codec zstd", "Java 4.4.0", "kafka", PASSED),
        one("codec zstd", "Java 4.4.0", "lockstep", PASSED),
        one("codec zstd", "kcat", "kafka", PASSED),
        one("codec zstd", "kcat", "lockstep", FAILED, "assert [] == [1]"),
        one("codec zstd", "kcat", "lockstep", PASSED),  # a teardown that went well
        one("nulls", "kcat", "kafka", LIMITED, "cannot"),
        one("nulls", "kcat", "lockstep", LIMITED, "cannot"),
        one("nulls", "Java 4.4.0", "kafka", FAILED, "wrong case"),
        one("nulls", "Java 4.4.0", "lockstep", PASSED),
        one("keys", "Java 4.4.0", "kafka", PASSED),
        one("keys", "Java 4.4.0", "lockstep", PASSED),
        one("keys", "Java 4.4.0", "lockstep-3", PASSED),
        one("keys", "kcat", "lockstep-3", FAILED, "assert 3 == 1"),
        one("leaders", "kcat", "lockstep-3", PASSED),
        one("locks", "kcat", "lockstep", PASSED),
        replace(one("acks", "kcat", "kafka", PASSED), tries=2),
    ]


def test_the_table_shows_failures_limits_and_the_failed_clients(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    save(_outcomes(), path)
    page = report.markdown(*load(path))
    rows = {line.split("|")[1].strip(): line for line in page.splitlines() if line.startswith("|")}
    assert [cell.strip() for cell in rows["codec zstd"].split("|")[2:4]] == ["✓", "✗ Lockstep"]
    assert [cell.strip() for cell in rows["nulls"].split("|")[2:4]] == ["✗ Kafka", "–[1]"]
    assert [cell.strip() for cell in rows["keys"].split("|")[2:4]] == ["✓³", "✗ three nodes"]
    assert rows["leaders"].split("|")[3].strip() == "✓³"
    assert [cell.strip() for cell in rows["locks"].split("|")[2:4]] == ["", "✓ᴸ"]
    assert "1. kcat: cannot" in page
    assert "assert [] == [1]" in page
    again = page.partition("## Passed at the second try")[2].strip().splitlines()
    assert len(again) == 1 and again[0].startswith("- kafka, kcat") and again[0].endswith("acks")
    assert report.main(["--from", str(path), "--output", str(tmp_path / "page.md")]) == 1


def test_only_a_run_of_every_case_is_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LOCKSTEP_COMPAT_TARGETS", "LOCKSTEP_SPARK_VERSIONS"):
        monkeypatch.delenv(name, raising=False)
    whole = [str(ROOT / "tests"), str(ROOT / "compat_tests")]
    assert harness.is_whole(whole, "", None)
    assert not harness.is_whole(whole, "", "not tier(name='rest')")
    assert not harness.is_whole(whole, "headers", None)
    assert not harness.is_whole([str(ROOT / "compat_tests" / "test_rskafka.py")], "", None)
    monkeypatch.setenv("LOCKSTEP_COMPAT_TARGETS", "kafka")
    assert not harness.is_whole(whole, "", None)


def test_a_later_run_decides_the_result_of_a_case() -> None:
    first = _outcomes()
    later = [replace(each, result=PASSED) for each in first[2:5]] + [replace(first[0], case="new")]
    found = report.merged([first, later])
    assert found[:2] == first[:2] and found[2:5] == later[:3] and found[5:-1] == first[5:]
    assert found[-1].case == "new"


_SLOW_ONCE = """
import json, sys, time
for line in sys.stdin:
    asked = json.loads(line)
    time.sleep(asked.get("seconds", 0))
    print(json.dumps({"ok": asked["do"]}), flush=True)
"""


def test_an_answer_that_came_too_late_is_not_the_next_questions() -> None:
    driver = LineDriver([sys.executable, "-c", _SLOW_ONCE])
    try:
        assert driver.ask("first", {}) == "first"
        driver.answer_timeout_s = 0.05
        with pytest.raises(DriverFailed, match="no answer"):
            driver.ask("slow", {}, seconds=0.5)
        driver.answer_timeout_s = ANSWER_TIMEOUT_S
        assert driver.ask("next", {}) == "next"
    finally:
        driver.close()


def test_a_driver_is_read_by_a_process_with_more_than_a_thousand_open_files() -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, limits[1]), limits[1]))
    held = [os.open(os.devnull, os.O_RDONLY)]
    try:
        while held[-1] < 1024:
            held.append(os.dup(held[0]))
        driver = LineDriver([sys.executable, "-c", _SLOW_ONCE])
        try:
            assert driver.ask("first", {}) == "first"
        finally:
            driver.close()
    finally:
        for each in held:
            os.close(each)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_versions_with_one_verdict_share_a_row() -> None:
    good, bad = (PASSED, PASSED, PASSED), (FAILED, PASSED, "")
    verdict_of = {"Fetch v4": good, "Fetch v5": good, "Fetch v6": bad, "Fetch v7": good, "other": good}
    assert report.grouped(list(verdict_of), verdict_of) == [
        ("Fetch v4 to v5", good),
        ("Fetch v6", bad),
        ("Fetch v7", good),
        ("other", good),
    ]


def test_three_nodes_run_only_the_cases_that_differ_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LOCKSTEP_COMPAT_TARGETS", raising=False)
    admin, records = "compat_tests.test_admin", "compat_tests.test_records"
    assert not harness.is_left_out("lockstep", records, {"kcat"})
    assert not harness.is_left_out("lockstep-3", "compat_tests.test_nodes", ())
    assert not harness.is_left_out("lockstep-3", admin, {"confluent-kafka"})
    assert harness.is_left_out("lockstep-3", admin, {"kcat"})
    assert harness.is_left_out("lockstep-3", records, {"confluent-kafka"})
    monkeypatch.setenv("LOCKSTEP_COMPAT_TARGETS", "lockstep-3")
    assert harness.wanted_targets() == ("lockstep-3",) and not harness.both_brokers()
    assert not harness.is_left_out("lockstep-3", records, {"kcat"})


def test_a_case_belongs_to_its_broker_and_kind_of_client() -> None:
    prefix = "compat_tests/test_records.py::test_codec"
    assert share_of(f"{prefix}[kcat-on-lockstep-3-zstd]") == "lockstep-3 python"
    assert share_of(f"{prefix}[kcat-on-lockstep-zstd]") == "lockstep python"
    assert share_of("compat_tests/test_connect.py::test_group[on-lockstep]") == "connect"
    assert share_of("tests/test_x.py::test_y[on-lockstep]") == "tests/test_x.py"


def test_the_garbage_collector_passes_over_what_was_collected() -> None:
    assert gc.isenabled() and gc.get_freeze_count() > 10_000


def test_long_shares_begin_one_after_the_other_and_none_at_the_end() -> None:
    first, second = LONG_SHARES[:2]
    tests = {f"tests/test_{number}.py": 10 for number in range(100)} | {second: 3, first: 2, "many": 900}
    order = in_turns(tests)
    assert sorted(order) == sorted(tests)
    assert order[:2] == [first, "many"]
    assert order.index(second) == 2, "many have run for long"
    assert in_turns({each: 1 for each in (*LONG_SHARES, *tests)})[-1] not in LONG_SHARES
    assert in_turns({first: 1}) == [first]


def _partition(leader: int, index: int) -> dict[str, object]:
    return {"leader_id": leader, "partition_index": index}


class _Cluster(RoutedConnection):
    """Knows that t-0 is led at port 1, t-1 at port 2; talks to nobody."""

    def __init__(self) -> None:
        self._home = "h", 9
        self._sessions = {}

    def _ask(self, api: str, api_version: int, **fields: Any) -> Answer:
        brokers = [{"node_id": n, "host": "h", "port": n} for n in (1, 2)]
        topic = {"name": "t", "partitions": [_partition(1, 0), _partition(2, 1)]}
        return {"brokers": brokers, "topics": [topic] if fields["topics"][0]["name"] == "t" else []}


def test_requests_to_several_leaders_are_split_and_merged() -> None:
    asked = {"topics": [{"name": "t", "partitions": [{"partition_index": n} for n in (1, 0, 1)]}]}
    parts = _Cluster()._split("list_offsets", 7, asked)
    assert {to: part["topics"][0]["partitions"] for to, part in parts.items()} == {
        ("h", 2): [{"partition_index": 1}] * 2,
        ("h", 1): [{"partition_index": 0}],
    }
    answers: list[Answer] = [
        {"topics": [{"name": "t", "partitions": [{"partition_index": n, "offset": n} for n in told]}]}
        for told in ((1, 1), (0,))
    ]
    (topic,) = joined("list_offsets", answers, asked)["topics"]
    assert [each["partition_index"] for each in topic["partitions"]] == [1, 0, 1]
    unknown = {"topics": [{"name": "u", "partitions": [{"partition_index": 0}]}]}
    assert _Cluster()._split("list_offsets", 7, unknown) == {("h", 9): unknown}
    session = {
        "session_epoch": 0,
        "topics": [{"topic": "t", "partitions": [{"partition": n} for n in (0, 1)]}],
    }
    with pytest.raises(AssertionError, match="several leaders"):
        _Cluster()._split("fetch", 12, session)
