"""Jobs of the load generator beside one broker, or several: processes of their own, started and waited for.

Owns: the words that every job has, and that no job outlives its session. What the jobs do is `bench.load`'s.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any, Protocol

from confluent_kafka import KafkaException

from bench.settings import RECORD_BYTES, Sizes
from compat_tests.probe import HOST
from compat_tests.targets import ROOT, TargetFailed

JOB_TIMEOUT_S = 300.0

Block = dict[str, Any]


def unclaimed_block(name: str, policy: str, figures: Block) -> Block:
    """A block for whose figures no durability is claimed, so that none has to be proven."""
    return {"name": name, "policy": policy, "figures": figures, "proven": True}


class Running(Protocol):
    """The broker (or brokers) of a session, as an interface."""

    @property
    def bootstrap(self) -> str: ...
    @property
    def pids(self) -> list[int]: ...
    @property
    def port(self) -> int: ...
    def start(self) -> float: ...
    def kill9(self) -> None: ...
    def close(self) -> None: ...
    def log_tail(self) -> str: ...


class Jobs:
    """Starts jobs that speak to the target. `kind`: what the broker is called in errors."""

    target: Running

    def __init__(self, kind: str, sizes: Sizes) -> None:
        self.kind = kind
        self.sizes = sizes
        self._jobs: dict[subprocess.Popen[str], float] = {}
        """Started, and not known to have ended; how long each may take."""

    def kill_jobs(self) -> None:
        """End what is left of them."""
        for child in self._jobs:
            child.kill()
            child.wait()

    def job(self, name: str, **words: Any) -> Block:
        """Run one job of the load generator in its own process. RoundFailed."""
        return self.finish_job(self.start_job(name, **words))

    def start_job(self, name: str, **words: Any) -> subprocess.Popen[str]:
        """Start a job and do not wait."""
        job = {
            "job": name,
            "host": HOST,
            "port": self.target.port,
            "record_bytes": RECORD_BYTES,
            **words,
        }
        command = [sys.executable, "-m", "bench.load", json.dumps(job)]
        child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT)
        own_s = float(words.get("seconds", 0.0)) + float(words.get("warmup_s", 0.0))
        self._jobs[child] = JOB_TIMEOUT_S + own_s
        return child

    @contextlib.contextmanager
    def running_job(self, name: str, **words: Any) -> Iterator[subprocess.Popen[str]]:
        """A job beside other work, for `finish_job`; what fails within kills it."""
        child = self.start_job(name, **words)
        try:
            yield child
        except BaseException:
            child.kill()
            raise

    @contextlib.contextmanager
    def holding_job(self, name: str, **words: Any) -> Iterator[subprocess.Popen[str]]:
        """A job that holds something until its standard input ends. RoundFailed where it ended before."""
        with self.running_job(name, **words) as child:
            yield child
        self.finish_job(child)

    def finish_job(self, child: subprocess.Popen[str]) -> Block:
        """The result of a started job. RoundFailed."""
        try:
            output, _ = child.communicate(timeout=self._jobs[child])
            del self._jobs[child]
        except subprocess.TimeoutExpired as late:
            child.kill()
            child.wait()
            raise RoundFailed(f"{self.kind}: the load generator did not end") from late
        try:
            result: Block = json.loads(output)
        except ValueError:
            result = {"error": f"the load generator printed {output[-200:]!r}"}
        if child.returncode != 0 or "error" in result:
            raise RoundFailed(f"{self.kind}: {result.get('error', child.returncode)}")
        return result


def next_line(child: subprocess.Popen[str], held: str) -> Block:
    """The next line of a waiting job; then it resumes. Args: held: what it holds. RoundFailed."""
    assert child.stdin is not None and child.stdout is not None
    line = child.stdout.readline()
    found: Block = json.loads(line or '{"error": "the load generator ended"}')
    if "error" in found:
        raise RoundFailed(f"{held}: {found['error']}")
    try:
        child.stdin.write("\n")
        child.stdin.flush()
    except OSError as error:
        raise RoundFailed(f"{held}: the load generator ended: {error}") from error
    return found


class RoundFailed(RuntimeError):
    """A block could not be measured: unexpected responses, lost records, a broker that died."""


class WrongCount(RoundFailed):
    """The log has not as many records as were acknowledged: a fault of the broker's, never tried again."""


FAILURES = (RoundFailed, TargetFailed, KafkaException)
"""What ends a session and not the run."""
