"""`python -m tests.campaigns.malformed --frames 100000`: frames no client would send, against a real broker.

Over every API the broker says it serves. What must hold: the process stays up; a well-behaved client on
its own connection keeps producing and fetching what it produced, without a pause; nothing unexpected in the
log; every connection ends in an answer or a close once we say no more; memory is back to where it was after
warm-up; and what was stored on the way can be read, before and after a restart. With `--listener` the frames
go to a listener of its own, before a login, after one, or to TLS. Prints its seed, adds to
docs/evidence/malformed.json and ends with 1 when anything of this fails.
"""

from __future__ import annotations

import argparse
import random
import re
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Collection, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from compat_tests.raw import ConnectionClosed, RawConnection, request_frame
from compat_tests.targets import KafkaTarget, LockstepTarget, Target
from tests.campaigns import evidence
from tests.campaigns.attacked_listeners import (
    LISTENERS,
    AttackedListener,
    AttackedTarget,
    shut_down_writing,
)
from tests.campaigns.frames import NAMES, Frame, FrameSource
from tests.campaigns.history import WriterHistory, check, make_value
from tests.campaigns.partition_client import (
    FAILED,
    LOOPBACK,
    PartitionClient,
    api_ranges,
    first_ack,
    read_partition,
)
from tests.support.handmade_frames import next_offset

STEADY_TOPIC = "steady-client"
ANSWER_WAIT_S = 0.1
"""How long a whole frame may go unanswered before we half-close (no answer is right for acks=0)."""
CLOSE_WAIT_S = 10.0
"""After our half-close the broker must answer or close within this, or the connection counts as stuck."""
KEEP_CONNECTION_SHARE = 0.8
IN_PIECES_SHARE = 0.1
STEADY_PAUSE_S = 0.02
STEADY_STALL_S = 2.0
RSS_GROWTH_BYTES = 10 << 20
RSS_SAMPLES = 200
"""Over the run. Warm is the median of the third tenth, the end that of the last: frames of megabytes
come and go, so single samples differ by some MiB without any trend."""
UNREAD_REQUESTS = 20_000
UNREAD_RSS_BYTES = 64 << 20
LOG_PROBLEM = re.compile(
    r"Traceback \(most recent call last\)|\b(ERROR|CRITICAL)\b|[Uu]nexpected(?! message)|never retrieved"
)
"""An "unexpected message" is the reason that OpenSSL gives for what is no handshake."""


class SteadyClient:
    """Produces a record every few milliseconds on one connection and reads each back; any trouble is kept."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.history = WriterHistory("steady", "wire", idempotent=True)
        self.slowest_s = 0.0
        self.trouble: list[str] = []

    def create_topic(self) -> None:
        """Its first record, tried until the topic that it creates is there."""
        value = make_value("steady", 0, b"")
        offset = first_ack(self._port, STEADY_TOPIC, 30, value)
        self.history.sent = 1
        self.history.acked[0] = (0, offset)

    def start(self) -> None:
        """Begins; the topic must exist."""
        self._thread.start()

    def finish(self) -> None:
        """Stops and waits."""
        self._stop.set()
        self._thread.join(60)

    def _run(self) -> None:
        try:
            with PartitionClient(self._port, STEADY_TOPIC) as client:
                while not self._stop.is_set():
                    began = time.monotonic()
                    self._once(client)
                    self.slowest_s = max(self.slowest_s, time.monotonic() - began)
                    time.sleep(STEADY_PAUSE_S)
        except FAILED as error:
            self.trouble.append(f"after {self.history.sent} records: {error!r}")

    def _once(self, client: PartitionClient) -> None:
        sequence = self.history.sent
        value = make_value("steady", sequence, b"s" * 100)
        self.history.sent += 1
        error, offset = client.produce(value)
        if error:
            raise AssertionError(f"produce answered error {error}")
        self.history.acked[sequence] = (0, offset)
        error, _, data = client.fetch(offset)
        if error or value not in data:
            raise AssertionError(f"fetch of offset {offset} answered error {error} without the record")


class Attack:
    """Sends frames and classifies what came back."""

    def __init__(self, port: int, source: FrameSource, listener: AttackedListener) -> None:
        self._port = port
        self._source = source
        self._listener = listener
        self._connection: RawConnection | None = None
        self._rng = random.Random(0)
        self.outcomes: Counter[str] = Counter()
        self.families: Counter[str] = Counter()
        self.trouble: list[str] = []

    def one(self) -> None:
        """One frame, to its end."""
        frame = self._source.draw()
        self.families[frame.family.split("-")[0]] += 1
        outcome = self._send(frame)
        self.outcomes[outcome] += 1
        if outcome == "stuck" or outcome.startswith("refused"):
            self.trouble.append(f"{frame.family}: {outcome}: {frame.octets[:200].hex()}")

    def _send(self, frame: Frame) -> str:
        try:
            if self._connection is None:
                self._connection = self._listener.connect(self._port, ANSWER_WAIT_S)
        except (OSError, ConnectionClosed) as error:
            return f"refused {error}"
        connection = self._connection
        try:
            for piece in self._pieces(self._listener.octets(frame.octets)):
                connection.send_bytes(piece)
        except (OSError, ConnectionClosed):
            self._drop()
            return "closed"
        if not frame.whole:
            return self._until_closed(connection)
        outcome = _outcome(connection)
        if outcome == "silence":
            return self._until_closed(connection)
        if outcome == "closed" or self._rng.random() > KEEP_CONNECTION_SHARE:
            self._drop()
        return outcome

    def _pieces(self, octets: bytes) -> list[bytes]:
        """Most frames in one write; some cut at random places, so that the broker sees them grow."""
        if len(octets) > 100_000 or self._rng.random() > IN_PIECES_SHARE:
            return [octets]
        cuts = sorted(self._rng.randrange(len(octets) + 1) for _ in range(self._rng.choice((1, 2, 10))))
        return [octets[start:end] for start, end in pairwise([0, *cuts, len(octets)])]

    def _until_closed(self, connection: RawConnection) -> str:
        """Says that we have finished; answers may still come, then the broker must close."""
        try:
            shut_down_writing(connection)
            connection.socket.settimeout(CLOSE_WAIT_S)
            while True:
                outcome = _outcome(connection)
                if outcome != "answer":
                    return "stuck" if outcome == "silence" else "closed"
        except OSError:
            return "closed"
        finally:
            self._drop()

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class Campaign:
    """One whole run; `problems` is empty when everything held."""

    def __init__(
        self,
        target: Target,
        frames: int,
        seed: int,
        apis: Collection[int] = (),
        listener: AttackedListener | None = None,
    ) -> None:
        self._target = target
        self._listener = listener or AttackedListener()
        self._apis = frozenset(apis or self._listener.apis)
        self._frames = frames
        self._seed = seed
        self.problems: list[str] = []
        self.rss: dict[str, int] = {}
        self.attack: Attack | None = None
        self.steady: SteadyClient | None = None
        self.ranges: dict[int, tuple[int, int]] = {}

    def run(self) -> None:
        """Everything, on a started target; leaves it restarted."""
        for topic in NAMES:
            first_ack(self._target.port, topic, 30)
        with RawConnection(LOOPBACK, self._target.port) as raw:
            self.ranges = api_ranges(raw)
        if self._apis:
            self.ranges = {key: versions for key, versions in self.ranges.items() if key in self._apis}
        self.steady = SteadyClient(self._target.port)
        self.steady.create_topic()
        port = self._target.attacked_port if isinstance(self._target, AttackedTarget) else self._target.port
        source = FrameSource(random.Random(self._seed), self.ranges)
        self.attack = Attack(port, source, self._listener)
        self.steady.start()
        try:
            self._attack_and_watch(self.attack)
            self._ask_without_reading()
        finally:
            self.steady.finish()
        self._judge()

    def _attack_and_watch(self, attack: Attack) -> None:
        samples: list[int] = []
        every = max(1, self._frames // RSS_SAMPLES)
        for number in range(self._frames):
            attack.one()
            if number % every == 0:
                if not self._target.running:
                    self.problems.append(f"the process ended with {self._target.exit_code} by frame {number}")
                    return
                samples.append(self._target.rss_bytes())
            if number % 10_000 == 9_999:
                print(f"  {number + 1} frames, {dict(attack.outcomes)}, {samples[-1] >> 20} MiB", flush=True)
        first, last = len(samples) // 5, len(samples) // 10 + 1
        self.rss["warm"] = int(median(samples[first : first + last]))
        self.rss["end"] = int(median(samples[-last:]))
        self.rss["peak"] = max(samples)

    def _ask_without_reading(self) -> None:
        """Pipelined requests whose answers nobody takes must not pile up in memory."""
        if not self._target.running:
            return
        before = self._target.rss_bytes()
        connection = RawConnection(LOOPBACK, self._target.port, 2.0)
        partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}
        topics = [{"topic": STEADY_TOPIC, "partitions": [partition]}]
        fetch = {"replica_id": -1, "max_wait": 0, "min_bytes": 1, "max_bytes": 1 << 20, "topics": topics}
        burst = request_frame("fetch", 4, 1, fetch) * 100
        try:
            for _ in range(UNREAD_REQUESTS // 100):
                connection.send_bytes(burst)
        except (OSError, ConnectionClosed):
            pass  # the broker stopped reading, as it should
        grown = self._target.rss_bytes() - before
        connection.close()
        self.rss["unread_answers"] = grown
        if grown > UNREAD_RSS_BYTES:
            self.problems.append(f"answers nobody reads grew the process by {grown >> 20} MiB")

    def _judge(self) -> None:
        assert self.attack is not None and self.steady is not None
        self.problems += self.attack.trouble[:20] + self.steady.trouble
        if self.steady.slowest_s > STEADY_STALL_S:
            self.problems.append(f"the steady client once waited {self.steady.slowest_s:.2f} s")
        if not self._target.running:
            self.problems.append(
                f"the process ended with {self._target.exit_code}\n{self._target.log_tail()}"
            )
            return
        grown = self.rss.get("end", 0) - self.rss.get("warm", 0)
        if grown > RSS_GROWTH_BYTES:
            self.problems.append(f"memory grew by {grown / 2**20:.1f} MiB after warm-up")
        self.problems += log_problems(self._target.log_path)
        self._read_back("before restart")
        code = self._target.stop()
        if code:
            self.problems.append(f"SIGTERM ended it with {code}\n{self._target.log_tail()}")
        self._target.start()
        self._read_back("after restart")

    def _read_back(self, when: str) -> None:
        """The steady client's topic is whole; the attacked ones can still be read from end to end."""
        assert self.steady is not None
        try:
            records = read_partition(self._target.port, STEADY_TOPIC)
            verdict = check([self.steady.history], {0: records})
            self.problems += [f"{when}: {problem}" for problem in verdict.problems]
        except (*FAILED, RuntimeError) as error:
            self.problems.append(f"{when}: {STEADY_TOPIC} cannot be read: {error!r}")
        for topic in NAMES:
            problem = walk_topic(self._target.port, topic)
            if problem:
                self.problems.append(f"{when}: {problem}")


def _outcome(connection: RawConnection) -> str:
    """What comes next: "answer", "closed" or "silence" (nothing before the time-out)."""
    try:
        connection.receive_frame()
    except TimeoutError:
        return "silence"
    except (OSError, ConnectionClosed):
        return "closed"
    return "answer"


def walk_topic(port: int, topic: str) -> str | None:
    """Reads batch headers to the high watermark without opening them; what is wrong, if anything.

    From the log's start: a DeleteRecords of ours may have been a valid one.
    """
    offset = 0
    try:
        with PartitionClient(port, topic) as client:
            error, offset = client.earliest()
            if error not in (0, 3):
                return f"{topic}: its earliest offset: error {error}"
            while True:
                error, end, data = client.fetch(offset)
                if error == 3:
                    return None  # deleted by a DeleteTopics of ours
                if error:
                    return f"{topic} at {offset} of {end}: error {error}"
                if offset >= end:
                    return None
                following = next_offset(data, offset)
                if following is None:
                    return f"{topic}: nothing served at {offset} of {end}"
                offset = following
    except FAILED as error:
        return f"{topic} at {offset}: {error!r}"


def log_problems(path: Path) -> list[str]:
    """Lines of the broker's log that no malformed frame should cause."""
    found = [line for line in path.read_text(errors="replace").splitlines() if LOG_PROBLEM.search(line)]
    kinds = Counter(re.sub(r"\d+", "N", line)[:160] for line in found)
    return [f"log, {count} times: {kind}" for kind, count in kinds.most_common(10)]


def run(
    target: Target,
    frames: int,
    seed: int,
    apis: Collection[int] = (),
    listener: AttackedListener | None = None,
) -> tuple[Campaign, dict[str, Any]]:
    """One campaign on a started target, and its figures."""
    began = time.monotonic()
    campaign = Campaign(target, frames, seed, apis, listener)
    campaign.run()
    attack, steady = campaign.attack, campaign.steady
    assert attack is not None and steady is not None
    return campaign, {
        "target": target.name,
        "listener": (listener or AttackedListener()).name,
        "seed": seed,
        "frames": sum(attack.outcomes.values()),
        "duration_s": round(time.monotonic() - began, 1),
        "apis": {str(key): list(versions) for key, versions in sorted(campaign.ranges.items())},
        "outcomes": dict(attack.outcomes),
        "families": dict(attack.families),
        "rss_mib": {name: round(size / 2**20, 1) for name, size in campaign.rss.items()},
        "steady_client": {
            "records": len(steady.history.acked),
            "slowest_ms": round(steady.slowest_s * 1000, 1),
        },
        "problems": campaign.problems,
    }


def _target(kind: str, listener: AttackedListener, directory: Path) -> Target:
    if kind == "kafka":
        return KafkaTarget(directory=directory)
    if listener.name == AttackedListener.name:
        return LockstepTarget(directory=directory)
    return AttackedTarget(listener, directory)


def main(words: Sequence[str] | None = None) -> int:
    """The campaign as a command; 1 when something did not hold."""
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns.malformed", description=__doc__)
    parser.add_argument("--frames", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=None, help="default: drawn, and printed")
    parser.add_argument("--target", choices=["lockstep", "kafka"], default="lockstep")
    parser.add_argument(
        "--apis", type=int, nargs="*", default=[], help="only these API keys (default: all served)"
    )
    parser.add_argument("--listener", choices=sorted(LISTENERS), default=AttackedListener.name)
    parser.add_argument("--no-evidence", action="store_true")
    arguments = parser.parse_args(words)
    seed = random.SystemRandom().randrange(2**31) if arguments.seed is None else arguments.seed
    print(f"malformed: seed {seed}, {arguments.frames} frames", flush=True)
    with tempfile.TemporaryDirectory(prefix="lockstep-malformed-") as name:
        listener = LISTENERS[arguments.listener]()
        with _target(arguments.target, listener, Path(name)) as target:
            campaign, figures = run(target, arguments.frames, seed, arguments.apis, listener)
            if campaign.problems:
                print(f"broker's log kept: {target.keep_log()}", flush=True)
    print(figures, flush=True)
    if not arguments.no_evidence:
        evidence.add_run("malformed", figures)
    return 1 if campaign.problems else 0


if __name__ == "__main__":
    sys.exit(main())
