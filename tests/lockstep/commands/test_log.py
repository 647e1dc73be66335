"""`lockstep log verify` and `log dump`, on what a killed broker left."""

from __future__ import annotations

import errno
import hashlib
import json
import re
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from compat_tests import fork_server
from lockstep.commands import log as log_command
from tests.lockstep.commands.test_serve import COMMAND, ENVIRONMENT, run, served
from tests.lockstep.conftest import Run


@pytest.fixture(scope="module")
def left_behind(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory with several segments, as kill -9 left it."""
    directory = tmp_path_factory.mktemp("log") / "data"
    small = ("--set", "lockstep.segment.bytes=1048576", "--set", "message.max.bytes=200000")
    with served("--data-dir", str(directory), "--listen", "127.0.0.1:0", *small) as (process, address):
        run("topics", "create", "orders", "-p", "2", "-b", address)
        for _ in range(3):
            run(
                "produce",
                "orders",
                "-b",
                address,
                "-p",
                "0",
                stdin="some text " * 10 + "\n" + ("some text " * 10 + "\n") * 10_000,
            )
        run(
            "produce",
            "orders",
            "-b",
            address,
            "-p",
            "1",
            "-z",
            "zstd",
            "-K:",
            "-H",
            "a=b",
            stdin="k:v\nlast:one\n",
        )
        process.send_signal(signal.SIGKILL)
        process.wait(10)
    return directory


@pytest.fixture
def directory(left_behind: Path, tmp_path: Path) -> Path:
    """A copy to damage."""
    shutil.copytree(left_behind, tmp_path / "data")
    return tmp_path / "data"


def fingerprint(directory: Path) -> dict[str, tuple[int, str]]:
    return {
        str(file): (file.stat().st_mtime_ns, hashlib.md5(file.read_bytes()).hexdigest())
        for file in sorted(directory.rglob("*"))
        if file.is_file()
    }


def verified(command: Run, directory: Path) -> tuple[int, dict[str, Any]]:
    outcome = command("log", "verify", str(directory), "--json")
    assert outcome.err == "" and outcome.out.count("\n") == 1
    return outcome.status, json.loads(outcome.out)


def dumped(command: Run, directory: Path, *arguments: str) -> list[dict[str, Any]]:
    outcome = command("log", "dump", str(directory), "--json", *arguments)
    assert outcome.status == 0, outcome.err
    return [json.loads(line) for line in outcome.out.splitlines()]


def test_a_sound_log_verifies_and_stays_as_it_is(command: Run, directory: Path) -> None:
    before = fingerprint(directory)
    status, document = verified(command, directory)
    assert (status, document["ok"]) == (0, True)
    assert [group["group"] for group in document["groups"]] == [0, 1]
    data = document["groups"][1]
    assert data["rot"] == [] and data["segments"] > 2
    assert data["records"] == 30_005
    table = command("log", "verify", str(directory))
    assert table.status == 0 and table.out.splitlines()[2].endswith("ok")
    dumped(command, directory)
    assert fingerprint(directory) == before


def test_control_records_are_counted_apart(command: Run, tmp_path: Path) -> None:
    directory = tmp_path / "data"
    with served("--data-dir", str(directory), "--listen", "127.0.0.1:0") as (process, address):
        run("topics", "create", "orders", "-b", address)
        producer = confluent_kafka.Producer({"bootstrap.servers": address, "transactional.id": "t"})
        producer.init_transactions(30)
        for _ in range(2):
            producer.begin_transaction()
            producer.produce("orders", b"one")
            producer.commit_transaction(30)
        process.send_signal(signal.SIGTERM)
        process.wait(30)
    batches = [batch for frame in dumped(command, directory) for batch in frame["batches"]]
    orders = [batch for batch in batches if batch["partition"] == "orders-0"]
    assert len(orders) == 4, "two records and two markers"
    own = sum(batch["records"] for batch in batches if batch["partition"].startswith("("))
    groups = verified(command, directory)[1]["groups"]
    assert sum(group["control_records"] for group in groups) == own + 2
    assert sum(group["records"] for group in groups) == sum(batch["records"] for batch in batches) - own - 2
    header, _, row = command("log", "verify", str(directory)).out.splitlines()
    counts = dict(zip(header.split(), row.split(), strict=True))
    assert (int(counts["RECORDS"]), int(counts["CONTROL"])) == (
        groups[1]["records"],
        groups[1]["control_records"],
    )


def test_each_node_of_a_clusters_directory_is_verified(
    command: Run, left_behind: Path, tmp_path: Path
) -> None:
    for number in ("1", "2", "10"):
        shutil.copytree(left_behind, tmp_path / number)
    outcome = command("log", "verify", str(tmp_path), "--json")
    documents = [json.loads(line) for line in outcome.out.splitlines()]
    nodes = [str(tmp_path / number) for number in ("1", "2", "10")]
    assert [document["directory"] for document in documents] == nodes
    assert outcome.status == 0 and all(document["ok"] for document in documents)
    file = segments(tmp_path / "2")[0]
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    outcome = command("log", "verify", str(tmp_path))
    assert outcome.status == 1
    assert [line for line in outcome.out.splitlines() if line.startswith("/")] == nodes
    assert outcome.out.count(" ROT") == 1
    dump = command("log", "dump", str(tmp_path))
    assert dump.status == 1
    assert f"has the data directories of 3 nodes; name one of them: {', '.join(nodes)}" in dump.err


def test_a_group_can_be_named_directly(command: Run, directory: Path) -> None:
    _, document = verified(command, directory / "groups" / "1")
    assert [group["group"] for group in document["groups"]] == [1]
    assert dumped(command, directory / "groups" / "1", "-n", "1")[0]["index"] >= 1


def test_dump_knows_topics_batches_and_records(command: Run, directory: Path) -> None:
    frames = dumped(command, directory, "--group", "1")
    assert [frame["index"] for frame in frames] == list(range(1, len(frames) + 1))
    assert frames[0]["kind"] == "no_op"
    batches = [batch for frame in frames for batch in frame["batches"]]
    assert {batch["partition"] for batch in batches} == {"(control)", "orders-0", "orders-1"}
    assert sum(batch["records"] for batch in batches if batch["partition"] == "orders-0") == 30_003

    last = dumped(command, directory, "--group", "1", "--from-index", str(frames[-1]["index"]), "--records")
    (batch,) = last[0]["batches"]
    assert (len(last), batch["partition"], batch["codec"]) == (1, "orders-1", "zstd")
    assert [(record["offset"], record["key"], record["value"]) for record in batch["contents"]] == [
        (0, "k", "v"),
        (1, "last", "one"),
    ]
    assert batch["contents"][0]["headers"] == [{"name": "a", "value": "b"}]


def test_dump_for_people(command: Run, directory: Path) -> None:
    lines = command("log", "dump", str(directory), "--group", "1").out.splitlines()
    assert lines[0].startswith("group 1 index 1 term 1 no_op lsn 1 ")
    assert lines[-1].startswith("  orders-1 offset 0 records 2 bytes ")
    index = lines[-2].split()[3]
    lines = command(
        "log", "dump", str(directory), "--group", "1", "--from-index", index, "--records"
    ).out.splitlines()
    assert lines[2].startswith("    0: 'k' 'v'") and lines[3].startswith("    1: 'last' 'one'")
    assert len(command("log", "dump", str(directory), "--group", "1", "-n", "2").out.splitlines()) == 3


def flip(place: Callable[[int], int]) -> Callable[[Path], None]:
    def damage(file: Path) -> None:
        data = bytearray(file.read_bytes())
        data[place(len(data))] ^= 0x10
        file.write_bytes(data)

    return damage


def segments(directory: Path) -> list[Path]:
    return sorted((directory / "groups" / "1").glob("*.segment"))


@pytest.mark.parametrize(
    ("damage", "which"),
    [
        (flip(lambda size: 500_000), 0),
        (flip(lambda size: 4096 + 44 + 3), 0),
        (flip(lambda size: 20), 1),
        (flip(lambda size: 100_000), 1),
        (Path.unlink, 0),
        (Path.unlink, 1),
        (lambda file: file.write_bytes(file.read_bytes()[:100_000]), 1),
        (lambda file: file.write_bytes(bytes(file.stat().st_size)), 0),
    ],
    ids=[
        "payload",
        "frame header",
        "segment header",
        "later payload",
        "first missing",
        "missing",
        "cut",
        "zeroed",
    ],
)
def test_corruption_is_found_and_named(
    command: Run,
    directory: Path,
    damage: Callable[[Path], None],
    which: int,
    request: pytest.FixtureRequest,
) -> None:
    damage(segments(directory)[which])
    status, document = verified(command, directory)
    assert (status, document["ok"]) == (1, False)
    assert document["groups"][0]["rot"] == []
    group = document["groups"][1]
    assert group["rot"] and group["notes"] == []
    assert "groups/1" in group["rot"][0]
    found = {(each["topic"], each["partition"]) for each in group["damage"]}
    without_batches = "[frame header]" in request.node.name  # it is the no-op at the log's begin
    assert found == {(None, -1)} if without_batches else ("orders", 0) in found
    table = command("log", "verify", str(directory))
    assert table.status == 1 and " ROT" in table.out
    for rot in group["rot"]:
        assert f"log group 1: {rot}" in table.out and "partition 1 offset" not in rot
    dump = command("log", "dump", str(directory), "--group", "1")
    assert dump.status == 1 and dump.err.startswith("lockstep: rot: ") and dump.err.count("\n") == 1


def test_all_damage_of_a_group_is_named_by_topic_partition_and_offsets(command: Run, directory: Path) -> None:
    batches = [
        (frame, batch)
        for frame in dumped(command, directory, "--group", "1")
        for batch in frame["batches"]
        if batch["partition"].startswith("orders-")
    ]
    chosen = [batches[0], batches[len(batches) // 2], batches[-1]]
    assert len({frame["segment"] for frame, _ in chosen}) == 3
    for frame, batch in chosen:
        file = next(file for file in segments(directory) if int(file.stem) == frame["segment"])
        data = bytearray(file.read_bytes())
        at = data.index(batch["base_offset"].to_bytes(8, "big") + (batch["bytes"] - 12).to_bytes(4, "big"))
        data[at + batch["bytes"] - 3] ^= 4
        file.write_bytes(data)
    status, document = verified(command, directory)
    expected = [
        (
            frame["segment"],
            *batch["partition"].split("-"),
            batch["base_offset"],
            batch["base_offset"] + batch["records"] - 1,
        )
        for frame, batch in chosen
    ]
    found = document["groups"][1]["damage"]
    names = ("segment", "topic", "partition", "first_offset", "last_offset")
    assert [tuple(str(each[name]) for name in names) for each in found] == [
        tuple(map(str, each)) for each in expected
    ]
    lines = command("log", "verify", str(directory)).out.splitlines()
    for _, topic, index, first, last in expected:
        offsets = f"offset {first}" if first == last else f"offsets {first} to {last}"
        assert any(line.startswith(f"log group 1: {topic}-{index} {offsets}: ") for line in lines)
    assert status == 1 and len(found) == 3


def test_topics_are_named_though_group_0_is_damaged(command: Run, directory: Path) -> None:
    flip(lambda size: 500_000)(segments(directory)[0])
    for file in sorted((directory / "groups" / "0").glob("*.segment")):
        data = bytearray(file.read_bytes())
        place = data.find(b"LSTKMARK", 4096 + 100)
        data[place + 44 + 20] ^= 1
        file.write_bytes(data)
        break
    status, document = verified(command, directory)
    assert status == 1 and document["groups"][0]["rot"]
    assert document["groups"][1]["damage"][0]["topic"] == "orders"


def test_a_damaged_state_file_is_corruption(command: Run, directory: Path) -> None:
    (directory / "groups" / "1" / "state").write_bytes(bytes(8192))
    assert verified(command, directory)[0] == 1


def test_a_torn_end_is_no_corruption(command: Run, directory: Path) -> None:
    """What a crash in the middle of the last write leaves behind: its last block never reached the disk."""
    frames = dumped(command, directory, "--group", "1")
    last = frames[-1]
    file = next(file for file in segments(directory) if int(file.stem) == last["segment"])
    data = bytearray(file.read_bytes())
    (batch,) = last["batches"]
    end = last["byte"] + 80 + 40 + batch["bytes"]
    data[end - 5 :] = bytes(len(data) - end + 5)
    file.write_bytes(data)
    status, document = verified(command, directory)
    assert (status, document["groups"][1]["frames"]) == (0, len(frames) - 1)


def test_what_is_no_log_or_in_use(command: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for arguments in (("verify",), ("dump",)):
        (tmp_path / "file").touch()
        for path, said in [
            (tmp_path / "nothing", "there is no directory"),
            (tmp_path / "file", "is a file, not a directory"),
            (tmp_path, "no data directory"),
        ]:
            outcome = command("log", *arguments, str(path))
            assert outcome.status == 1 and said in outcome.err and outcome.err.count("\n") == 1
    with served("--data-dir", str(tmp_path / "data"), "--listen", "127.0.0.1:0") as (process, _):
        outcome = command("log", "verify", str(tmp_path / "data"))
        assert outcome.status == 1
        assert f"a broker (process {process.pid}) is running on" in outcome.err
        monkeypatch.chdir(tmp_path / "data" / "groups")
        outcome = command("log", "verify", "1")
        assert outcome.status == 1 and "is running on" in outcome.err, "whose directory it is, is further up"
    outcome = command("log", "dump", str(tmp_path / "data"), "--group", "77")
    assert outcome.status == 1 and "no log group 77" in outcome.err


def test_system_errors_are_reported_in_words(
    command: Run, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: object, path: Path, create: bool = False) -> int:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr("lockstep.storage.log.inspect.ReadOnlyFileSystem.open", refuse)
    for what in ("verify", "dump"):
        outcome = command("log", what, str(directory))
        assert outcome.status == 1 and outcome.err.endswith(": permission denied\n"), outcome
        assert outcome.err.startswith(f"lockstep: {directory}") and outcome.err.count("\n") == 1


def test_a_path_that_is_too_long_is_one_line(command: Run) -> None:
    for what in ("verify", "dump"):
        outcome = command("log", what, "a" * 400)
        assert outcome.status == 1 and outcome.err.endswith(": file name too long\n"), outcome.err
        assert outcome.err.count("\n") == 1


def _done(*arguments: str) -> subprocess.CompletedProcess[str]:
    return fork_server.run([*COMMAND, *arguments], text=True, timeout_s=60, env=ENVIRONMENT)


def test_damaged_records_are_given_up_at_an_operators_word(directory: Path) -> None:
    """Status names them and ends with 1, consumers get an error; then they are skipped."""
    path = min((directory / "groups" / "1").glob("*.segment"))
    data = bytearray(path.read_bytes())
    place = data.index(b"some text " * 10, len(data) // 2) + 3
    data[place] ^= 0x20
    path.write_bytes(data)
    small = ("--set", "lockstep.segment.bytes=1048576", "--set", "message.max.bytes=200000")
    with served("--data-dir", str(directory), "--listen", "127.0.0.1:0", *small) as (_, address):
        nothing = _done("log", "skip-damage", "orders-0", "-b", address)
        assert (nothing.returncode, "no damaged records are known" in nothing.stdout) == (0, True)
        consume = ("consume", "orders", "-b", address, "-p", "0", "--from-beginning")
        failed = _done(*consume, "--timeout", "3")
        assert re.search(
            r"orders, partition 0, offset \d+: .* see `lockstep cluster status` \(CORRUPT_MESSAGE\)",
            failed.stderr,
        )
        assert failed.returncode != 0 and "CORRUPT_MESSAGE" in failed.stderr, failed.stderr
        assert "sOme" not in failed.stdout
        status = _done("cluster", "status", "-b", address)
        assert status.returncode == 1 and "`lockstep log skip-damage orders-0`" in status.stdout
        skipped = _done("log", "skip-damage", "orders-0", "-b", address)
        assert skipped.returncode == 0 and "are skipped" in skipped.stdout, skipped.stdout + skipped.stderr
        assert _done("cluster", "status", "-b", address).returncode == 0
        done = _done(*consume)
        assert done.returncode == 0 and len(failed.stdout) < len(done.stdout), done.stderr
        assert _done("log", "skip-damage", "orders", "-b", address).returncode != 0
        assert _done("log", "skip-damage", "orders-7", "-b", address).returncode != 0


@pytest.mark.parametrize("silent", [[], [{"node": 3, "reason": "no link to node 3"}]])
def test_skipping_ends_with_1_where_a_node_with_a_copy_did_not_answer(
    command: Run, monkeypatch: pytest.MonkeyPatch, silent: list[dict[str, object]]
) -> None:
    given_up = [
        {"node": 1, "group": 1, "segment": 4, "first_offset": 5, "last_offset": 7},
        {"node": 2, "group": 1, "segment": 0, "first_offset": 0, "last_offset": 4},
    ]

    asked = []

    async def ask(client: object, question: dict[str, object]) -> dict[str, object]:
        asked.append(question)
        return {"given_up": given_up, "unanswered": silent}

    monkeypatch.setattr("lockstep.kafka_client.cluster._send_command", ask)
    done = command("log", "skip-damage", "orders-0")
    assert "orders-0: offsets 5 to 7 are skipped (node 1, log group 1, log file 4)\n" in done.out
    assert "orders-0: offsets 0 to 4 are skipped (node 2, log group 1)\n" in done.out, "missing records"
    assert done.status == (1 if silent else 0)
    expected = (
        "no response from node 3 (no link to node 3): the copy there may still be damaged; run this again"
    )
    assert (expected in done.err) == bool(silent)
    document = command("log", "skip-damage", "orders-0", "--json", "--force")
    assert [each.get("force") for each in asked] == [None, True]
    assert document.status == (1 if silent else 0)
    assert json.loads(document.out) == {"given_up": given_up, "unanswered": silent}


def test_a_slow_verification_reports_its_progress(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock_s = 100.0
    monkeypatch.setattr("time.monotonic", lambda: clock_s)
    reading = log_command._Progress(3)
    for clock_s in (100.5, 101.0, 105.9, 106.0):
        reading(int(clock_s - 100) << 20, 64 << 20)
    assert capsys.readouterr() == (
        "",
        "lockstep: log group 3: 1 of 64 MiB read\nlockstep: log group 3: 6 of 64 MiB read\n",
    )
