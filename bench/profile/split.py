"""`python -m bench profile`: a group commit's time by stage, and flame graphs, of the leading node.

Owns: the load, the sampler beside it, counting the group commits of the same stretch, and what is kept.
py-spy stops the node for each sample, a few dozen times a second, and only while the load runs: without
stopping it saw no frame of ours in half of the samples, and more samples cost too much. The flame graph comes
after the split, under a load of its own, as its native frames do slow the node. A stretch without any sampler
shows what looking on costs. Stages: `stages`; what the kernel does meanwhile: `system_calls`.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from bench import argument_types
from bench.exit_status import log_progress
from bench.figures.ratios import SUBJECT
from bench.machine import process
from bench.profile import stages, system_calls
from bench.runner import KEPT, Measurement, Options
from bench.sessions.cluster import NodesSession
from bench.sessions.commits import commits_by_topic
from bench.sessions.jobs import RoundFailed
from bench.sessions.session import Session
from bench.sessions.setup import Setup
from bench.settings import FLUSH, NODES, NODES_QUICK, POLICIES, PRODUCERS, QUICK
from compat_tests.targets import LockstepTarget, TargetFailed

KIND = "profile"
SPLIT_RATE = 40
FLAME_RATE = 100
"""Samples a second. At 200 py-spy took so much of two processors that the broker did half of what it does
alone."""
LEAD_S = 0.8
"""Until the load generator runs."""
CALLS_S = 3.0
"""How long perf records, after py-spy; and how long neither does."""
_SPY_EXTRA_S = 60.0

Split = dict[str, Any]


@dataclass(frozen=True)
class Seconds:
    """The length of what py-spy sees."""

    seconds: float


def spy(pid: int, seconds: float, output: Path, *words: str) -> subprocess.Popen[str]:
    """py-spy, recording. Args: words: format and further options."""
    command = [str(Path(sys.executable).with_name("py-spy")), "record", "--pid", str(pid)]
    command += ["--duration", str(max(1, round(seconds))), "--output", str(output), *words]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def finish(sampler: subprocess.Popen[str], output: Path) -> None:
    """Wait for py-spy. TargetFailed where it has recorded nothing."""
    _, errors = sampler.communicate(timeout=_SPY_EXTRA_S)
    if sampler.returncode != 0 or not output.exists():
        raise TargetFailed(f"py-spy failed: {errors[-500:]}")


def _session(nodes: int, policy: str, parent: Path) -> Session:
    if nodes == 1:
        return Session(SUBJECT, Setup("lockstep", (policy,)), QUICK, parent)
    return NodesSession(SUBJECT, Setup("lockstep", (policy,)), NODES_QUICK, parent)


def _leader(session: Session, topic: str) -> LockstepTarget:
    """The node that leads the topic's one partition."""
    found = session.target
    if isinstance(session, NodesSession):
        found = session.cluster.nodes[session.leaders(topic)[0]]
    assert isinstance(found, LockstepTarget)
    return found


def measure_split(
    nodes: int, policy: str, work: str, seconds: float, parent: Path, flame: Path | None
) -> Split:
    """One split, and its flame graph if `flame` is set. RoundFailed, TargetFailed."""
    producers = 1 if work == "latency1" else PRODUCERS
    session = _session(nodes, policy, parent)
    try:
        session.open()
        topic = session.topic(policy)
        leader = _leader(session, topic)
        words: dict[str, Any] = {"partitions": 1, "records": 1, "spread": "turns", "warmup_s": 0.0}
        alone = session.closed_loop(session.topic(policy), producers, seconds=CALLS_S)
        words["seconds"] = LEAD_S + seconds + CALLS_S + 2.5
        load = session.start_job("closed_loop", topic=topic, producers=producers, **words)
        time.sleep(LEAD_S)
        with tempfile.TemporaryDirectory(prefix="bench-profile-") as scratch:
            folded = Path(scratch) / "stacks"
            how = ["--format", "raw", "--rate", str(SPLIT_RATE), "--threads", "--idle"]
            before, began = process.thread_cpu_seconds(leader.pid), time.monotonic()
            finish(spy(leader.pid, seconds, folded, *how), folded)
            spent = process.thread_cpu_seconds(leader.pid) - before
            cpu_share = spent / (time.monotonic() - began)
            counted = stages.split(folded.read_text())
            script = system_calls.record(leader.pid, CALLS_S, Path(scratch))
        done = session.finish_job(load)
        if flame:  # native frames slow the node down: under a load of its own
            other = session.topic(policy)
            load = session.start_job("closed_loop", topic=other, producers=producers, **words)
            time.sleep(LEAD_S)
            how = ["--format", "flamegraph", "--rate", str(FLAME_RATE), "--native"]
            finish(spy(_leader(session, other).pid, seconds, flame, *how), flame)
            session.finish_job(load)
        leader.stop()
        commits = commits_by_topic(leader.data_dir)[topic]
    finally:
        session.close()
    if not commits:
        raise RoundFailed(f"{topic} has no group commits")
    commit_us = words["seconds"] / commits * 1e6
    return {
        "nodes": nodes,
        "policy": policy,
        "work": work,
        "samples": dict(counted),
        "commits": commits,
        "commit_us": commit_us,
        "writes_per_commit": done["total_requests"] / commits,
        "requests_per_s": done["requests_per_s"],
        "requests_per_s_alone": alone["requests_per_s"],
        "cpu_share": round(cpu_share, 3),
        "per_commit_us": stages.per_commit(counted, cpu_share, commit_us),
        "calls_per_commit_us": _calls(script, cpu_share, commit_us),
    }


def _calls(script: str | None, cpu_share: float, commit_us: float) -> dict[str, float]:
    found = system_calls.count_samples(script or "")
    if not found:
        log_progress("no system calls: perf is missing here, or may not look")
        return {}
    return system_calls.per_commit(found, cpu_share, commit_us)


class Profile(Measurement[None, Session]):
    """The time of a group commit by stage, on the node that leads; flame graphs with --flame."""

    name = KIND
    options: ClassVar[Options] = {
        "--work": {"choices": ["latency16", "latency1"], "default": "latency16"},
        "--policy": {"choices": POLICIES, "default": FLUSH},
        "--seconds": {"type": argument_types.positive, "default": 8.0},
        "--nodes": {"type": int, "choices": (1, NODES), "action": "append", "help": "default: both"},
        "--flame": {"type": Path, "metavar": "FILE.svg", "help": "flame graphs, too: FILE-1.svg, FILE-3.svg"},
        **KEPT,
    }

    def choose_sizes(self, sizes: Any) -> Seconds:
        return Seconds(2.0 if self.chosen.quick else self.chosen.seconds)

    def perform(self) -> tuple[list[Split], list[str]]:
        """One split for each number of nodes; the first that fails ends the run."""
        found: list[Split] = []
        for nodes in self.chosen.nodes or (1, NODES):
            log_progress(f"{nodes} node(s), {self.chosen.work}, {self.chosen.policy}")
            flame: Path | None = self.chosen.flame
            if flame is not None:
                flame = flame.with_stem(f"{flame.stem}-{nodes}")
                flame.parent.mkdir(parents=True, exist_ok=True)
            words = self.chosen.policy, self.chosen.work, self.sizes.seconds, self.parent
            try:
                found.append(measure_split(nodes, *words, flame))
            except (RoundFailed, TargetFailed) as error:
                return found, [str(error)]
            if flame is not None:
                log_progress(f"drawn: {os.path.relpath(flame)}")
        return found, []

    def figures(self, measured: Any) -> dict[str, Any]:
        return {"splits": measured}

    def table(self, result: dict[str, Any]) -> str:
        return f"{stages.table(result)}\n{system_calls.table(result)}"
