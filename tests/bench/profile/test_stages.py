"""Stages of a group commit: which function belongs to which, whose waiting is whose."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from bench.page.document import page
from bench.profile import stages
from bench.profile.split import measure_split
from bench.profile.stages import (
    APPEND,
    FLUSH_THREAD,
    FLUSH_WAIT,
    PARSE,
    REPLICATE,
    REPLY,
    REST,
    VALIDATE,
    WAITING,
    per_commit,
    split,
    stage_of,
)
from bench.settings import FLUSH
from compat_tests.targets import ROOT
from tests.bench.outcomes import FACTS
from tests.support.cases import each_case

_LOOP = [
    "main (lockstep/cli.py:86)",
    "run (lockstep/broker/main.py:64)",
    "Runner.run (asyncio/runners.py:118)",
]
_HANDLED = [
    *_LOOP,
    "Connection.buffer_updated (lockstep/broker/network/connection.py:310)",
    "Router.route (lockstep/broker/requests/router.py:180)",
]
_TURN = [
    *_LOOP,
    "LogGroup._propose_or_gather (lockstep/storage/log_group.py:516)",
    "Replica._pump (lockstep/storage/replica.py:323)",
]


@each_case(
    ("stack", "stage"),
    [
        (_LOOP, REST),
        (_HANDLED, PARSE),
        ([*_HANDLED, "decode (lockstep/protocol/compiler.py:90)"], PARSE),
        (
            [
                *_HANDLED,
                "handle (lockstep/broker/produce/api/produce.py:70)",
                "verify (lockstep/protocol/records/batch.py:9)",
            ],
            VALIDATE,
        ),
        ([*_HANDLED, "Appender.append (lockstep/broker/produce/appender.py:160)"], VALIDATE),
        (
            [
                *_HANDLED,
                "Appender._append_together (lockstep/broker/produce/appender.py:270)",
                "OpenFrame.add (lockstep/storage/open_frame.py:99)",
            ],
            APPEND,
        ),
        ([*_TURN, "LogWriter.append (lockstep/storage/log/writer.py:120)"], APPEND),
        ([*_TURN, "LogWriter.flush (lockstep/storage/log/writer.py:234)"], FLUSH_WAIT),
        (
            [
                *_TURN,
                "LogWriter.flush (lockstep/storage/log/writer.py:234)",
                "F.fdatasync (lockstep/storage/log/file_system.py:8)",
            ],
            FLUSH_WAIT,
        ),
        ([*_TURN, "Raft.ready (lockstep/storage/raft/raft.py:300)"], REPLICATE),
        ([*_TURN, "PeerNetwork.send (lockstep/storage/peers/network.py:88)"], REPLICATE),
        (
            [
                *_TURN,
                "notify (lockstep/storage/log_group.py:62)",
                "DelayedProduce._on_committed (lockstep/broker/produce/delayed_produce.py:320)",
            ],
            REPLY,
        ),
        ([*_TURN, "Connection.write_out (lockstep/broker/network/connection.py:470)"], REPLY),
        (
            [
                *_HANDLED,
                "encoded (lockstep/broker/network/response_encoder.py:63)",
                "encode (lockstep/protocol/compiler.py:7)",
            ],
            REPLY,
        ),
    ],
)
def test_the_innermost_frame_that_is_ours_decides(stack: list[str], stage: str) -> None:
    assert stage_of(stack) == stage


def test_every_name_in_the_rules_is_one_of_the_product() -> None:
    known = {"py"}
    for package in ("broker", "protocol", "storage"):
        for path in (ROOT / package).rglob("*.py"):
            known |= {path.stem, *path.relative_to(ROOT).parts}
            known |= set(re.findall(r"(?:def|class) (\w+)", path.read_text(encoding="utf-8")))
    named = {word for pattern, _ in stages._RULES for word in re.findall(r"[A-Za-z_]+", pattern)}
    assert named - known == set()


def _folded(*lines: tuple[str, list[str], int]) -> str:
    return "\n".join(f"thread (7): {name};{';'.join(frames)} {count}" for name, frames, count in lines)


def test_a_slow_disks_thread_stands_beside_the_loop_and_other_threads_do_not_count() -> None:
    flush = ["Thread._bootstrap (threading.py:1002)", "Flusher._flush (lockstep/storage/flusher.py:61)"]
    counted = split(
        _folded(
            ("MainThread", _HANDLED, 3),
            ("MainThread", _LOOP, 7),
            ("group-1-flush_0", flush, 5),
            ("group-1-flush_0", flush[:1], 90),
            ("lockstep-log", flush[:1], 90),
        )
    )
    assert counted == {PARSE: 3, REST: 7, FLUSH_THREAD: 5}
    nameless = "thread (6296): 1"  # one that py-spy met while it began or ended
    assert split(_folded(("MainThread", _HANDLED, 3)) + "\n" + nameless) == {PARSE: 3}
    with pytest.raises(ValueError, match="--threads"):
        split("main (x.py:1) 3")


def test_a_stack_ends_with_its_count_whatever_its_frames_are_called() -> None:
    route = "Router.route (lockstep/broker/requests/router.py:9) 3"
    odd = f"thread (7): MainThread;<native> (\n;odd\x0b\u2028 (x.py:1);{route}"
    folded = f"{odd}\nthread (7): MainThread;main (lockstep/cli.py:86) 4\nthread (7): MainThread;cut short ("
    assert list(stages.stacks(folded)) == [
        (odd.replace("\n", "").removesuffix(" 3"), 3),
        ("thread (7): MainThread;main (lockstep/cli.py:86)", 4),
    ]
    assert split(folded) == {PARSE: 3, REST: 4}
    assert list(stages.stacks("")) == []


def test_the_loops_own_time_is_what_the_processor_gave_beyond_the_stages() -> None:
    counted = split(
        _folded(("MainThread", _HANDLED, 20), ("MainThread", _LOOP, 60), ("MainThread", _TURN, 20))
    )
    found = per_commit(counted, 0.5, 1000.0)
    assert found == {PARSE: 200.0, APPEND: 200.0, REST: pytest.approx(100.0), WAITING: pytest.approx(500.0)}
    # a thread that was sampled at work but given less: nothing is left for the loop
    assert REST not in per_commit(counted, 0.3, 1000.0)
    with pytest.raises(ValueError, match="no samples"):
        per_commit(split(""), 0.5, 1000.0)


def _may_trace() -> bool:
    scope = Path("/proc/sys/kernel/yama/ptrace_scope")
    return os.geteuid() == 0 or not scope.exists() or scope.read_text().strip() == "0"


@pytest.mark.skipif(not _may_trace(), reason="this user may not look into other processes (ptrace_scope)")
def test_one_real_node_is_sampled_and_shown_on_the_page(tmp_path: Path) -> None:
    found = measure_split(1, FLUSH, "latency16", 3.0, tmp_path, None)
    assert found["commits"] > 10 and 1 <= found["writes_per_commit"] <= 16
    loop = sum(taken for stage, taken in found["per_commit_us"].items() if stage != FLUSH_THREAD)
    assert loop == pytest.approx(found["commit_us"])
    assert {PARSE, APPEND} & set(found["per_commit_us"])
    result = {
        "kind": "profile",
        "command": "python -m bench profile --split",
        **FACTS,
        "failures": [],
        "splits": [found],
    }
    text = page([result])
    assert "## Where the time of a group commit goes" in text and "one group commit" in text
    assert set(stages.MEANING) == {*stages.STAGES, FLUSH_THREAD}
