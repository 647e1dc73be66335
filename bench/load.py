"""The load generator: raw sockets, pre-encoded requests, one process, the same bytes for every broker.

Owns: closed-loop producers (one, or many behind one epoll), the pipelined fill of a backlog, the raw Fetch
reader, and the wait for a first acknowledged record. `python -m bench.load` runs one job given as JSON and
prints its result as JSON, so that the harness can sample the broker meanwhile.
Invariants: every response's correlation id and error codes are checked; a job that sees a wrong answer
fails. Latencies are int64 nanoseconds of the monotonic clock from just before the send until the whole
response is there. Requests sent during warm-up are not counted; what was sent in time and answered late is in
the latencies and not in the rates.
Does not do: retries (except `first_ack`), batching or compression: it measures the broker, not a client.
"""

from __future__ import annotations

import asyncio
import gc
import json
import select
import socket
import struct
import sys
import time
import traceback
from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.group_wire import CommitTemplate
from bench.members import await_coordinator, hold_members, rebalance
from bench.side_by_side import FETCH_MAX_BYTES, PARTITION_FETCH_BYTES, side_by_side
from bench.wire import FetchTemplate, ProduceTemplate, WrongAnswer, batch_is_sound, batch_span, record_batch

RECV_BYTES = 64 * 1024
SOCKET_TIMEOUT_S = 60.0

Result = dict[str, Any]


Template = ProduceTemplate | CommitTemplate


def connect(host: str, port: int, timeout_s: float = SOCKET_TIMEOUT_S) -> socket.socket:
    """A connected TCP socket without Nagle's delay."""
    sock = socket.create_connection((host, port), timeout=timeout_s)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def templates_for(
    topic: str, partitions: int, record_bytes: int, spread: str, records: int
) -> list[ProduceTemplate]:
    """What the producers send. `spread`:

    "turns": one request per partition, each with `records` records, sent in turn;
    "span": one request with `records` records to each of the partitions.
    """
    batch = record_batch(records, record_bytes, _now_ms())
    if spread == "span":
        return [ProduceTemplate(topic, {index: batch for index in range(partitions)}, records * partitions)]
    if spread != "turns":
        raise ValueError(f"unknown spread {spread!r}")
    return [ProduceTemplate(topic, {index: batch}, records) for index in range(partitions)]


def quantiles(latencies_ns: array[int]) -> dict[str, float]:
    """Nearest-rank percentiles in milliseconds."""
    ordered = sorted(latencies_ns)
    if not ordered:
        raise WrongAnswer("not one request was answered")
    last = len(ordered) - 1
    picks = {"p50_ms": 0.50, "p90_ms": 0.90, "p99_ms": 0.99, "p999_ms": 0.999, "max_ms": 1.0}
    out = {name: ordered[min(last, int(share * len(ordered)))] / 1e6 for name, share in picks.items()}
    out["mean_ms"] = sum(ordered) / len(ordered) / 1e6
    return out


class Producer:
    """One closed-loop producer (or committer): a socket, at most one request in flight."""

    __slots__ = ("_filled", "_turn", "_view", "correlation_id", "current", "sent_ns", "sock", "templates")

    def __init__(self, sock: socket.socket, templates: Sequence[Template], first_turn: int) -> None:
        self.sock = sock
        self.templates = templates
        self.current = templates[0]
        self.correlation_id = 0
        self.sent_ns = 0
        self._turn = first_turn
        self._filled = 0
        self._view = memoryview(bytearray(RECV_BYTES))

    def send(self) -> None:
        """Send the next request whole."""
        self.correlation_id += 1
        self.current = self.templates[self._turn % len(self.templates)]
        self._turn += 1
        request = self.current.stamp(self.correlation_id)
        self.sent_ns = time.perf_counter_ns()
        sent = self.sock.send(request)
        while sent < len(request):
            select.select([], [self.sock], [], SOCKET_TIMEOUT_S)
            sent += self.sock.send(memoryview(request)[sent:])

    def receive(self) -> bool:
        """Take what is there; True when the whole response has come and is a good one."""
        count = self.sock.recv_into(self._view[self._filled :])
        if count == 0:
            raise WrongAnswer("the broker closed the connection")
        self._filled += count
        if self._filled < 4:
            return False
        wanted = int.from_bytes(self._view[:4], "big") + 4
        if self._filled < wanted:
            return False
        if self._filled > wanted:
            raise WrongAnswer("more bytes than one response")
        self.current.verify(self._view, wanted, self.correlation_id)
        self._filled = 0
        return True


class Window:
    """The measured part of a run: opens after warm-up, closes `seconds` later."""

    __slots__ = ("bytes", "close_ns", "latencies", "open_ns", "records", "requests")

    def __init__(self, warmup_s: float, seconds: float) -> None:
        start = time.perf_counter_ns()
        self.open_ns = start + int(warmup_s * 1e9)
        self.close_ns = self.open_ns + int(seconds * 1e9)
        self.latencies = array("q")
        self.requests = self.records = self.bytes = 0

    def count(self, producer: Producer, done_ns: int) -> None:
        """An acknowledged request: its latency if it was sent inside the window, whenever the answer came,
        or a stall at the end would not be seen; rates are of what was answered inside, too."""
        if not self.open_ns <= producer.sent_ns < self.close_ns:
            return
        self.latencies.append(done_ns - producer.sent_ns)
        if done_ns <= self.close_ns:
            self.requests += 1
            self.records += producer.current.records
            self.bytes += producer.current.batch_bytes

    def result(self, total_requests: int, total_records: int) -> Result:
        seconds = (self.close_ns - self.open_ns) / 1e9
        return {
            "requests": self.requests,
            "seconds": seconds,
            "requests_per_s": self.requests / seconds,
            "mb_per_s": self.bytes / seconds / 1e6,
            "total_requests": total_requests,
            "total_records": total_records,
            **quantiles(self.latencies),
        }


def _one_producer(producer: Producer, window: Window) -> tuple[int, int]:
    requests = records = 0
    clock = time.perf_counter_ns
    while True:
        producer.send()
        while not producer.receive():
            pass
        done = clock()
        requests += 1
        records += producer.current.records
        window.count(producer, done)
        if done >= window.close_ns:
            return requests, records


def _many_producers(producers: list[Producer], window: Window) -> tuple[int, int]:
    """All behind one epoll; after the window closes, the answers still due are awaited."""
    requests = records = 0
    clock = time.perf_counter_ns
    by_fd = {producer.sock.fileno(): producer for producer in producers}
    poll = select.epoll()
    for producer in producers:
        producer.sock.setblocking(False)
        poll.register(producer.sock.fileno(), select.EPOLLIN)
        producer.send()
    in_flight = len(producers)
    while in_flight:
        events = poll.poll(SOCKET_TIMEOUT_S)
        if not events:
            raise WrongAnswer(f"no answer within {SOCKET_TIMEOUT_S} s")
        for fd, _ in events:
            producer = by_fd[fd]
            if not producer.receive():
                continue
            done = clock()
            requests += 1
            records += producer.current.records
            window.count(producer, done)
            if done < window.close_ns:
                producer.send()
            else:
                in_flight -= 1
    poll.close()
    return requests, records


def closed_loop(job: Result) -> Result:
    """`producers` closed-loop producers for `warmup_s` + `seconds`.

    With `ports` (each partition's leader) every producer keeps to one partition, at its leader.
    """
    templates = templates_for(
        job["topic"], job["partitions"], job["record_bytes"], job["spread"], job["records"]
    )
    producers = []
    for number in range(job["producers"]):
        mine, port = templates, job["port"]
        if "ports" in job:
            mine, port = [templates[number % len(templates)]], job["ports"][number % len(templates)]
        producers.append(Producer(connect(job["host"], port), mine, number))
    window = Window(job["warmup_s"], job["seconds"])
    if len(producers) == 1:
        totals = _one_producer(producers[0], window)
    else:
        totals = _many_producers(producers, window)
    for producer in producers:
        producer.sock.close()
    if job.get("keep"):
        Path(job["keep"]).write_bytes(window.latencies.tobytes())
    return window.result(*totals)


def _receive_frame(sock: socket.socket, buffer: bytearray) -> int:
    """A whole frame with its prefix into `buffer` (grown when needed); its length."""
    view = memoryview(buffer)
    filled = wanted = 0
    while not wanted or filled < wanted:
        count = sock.recv_into(view[filled:])
        if count == 0:
            raise WrongAnswer("the broker closed the connection")
        filled += count
        if not wanted and filled >= 4:
            wanted = int.from_bytes(view[:4], "big") + 4
            if wanted > len(buffer):
                view.release()
                buffer.extend(bytes(wanted - len(buffer)))
                view = memoryview(buffer)
    view.release()
    if filled != wanted:
        raise WrongAnswer("more bytes than one response")
    return wanted


def fill(job: Result) -> Result:
    """Write at least `total_bytes` to partition 0 in batches of `records`, `window` requests in flight."""
    batch = record_batch(job["records"], job["record_bytes"], _now_ms())
    template = ProduceTemplate(job["topic"], {0: batch}, job["records"])
    wanted = -(-job["total_bytes"] // len(batch))
    sock = connect(job["host"], job["port"])
    response = bytearray(RECV_BYTES)
    view = memoryview(response)
    sent = acked = filled = 0
    start = time.perf_counter_ns()
    while acked < wanted:
        while sent < wanted and sent - acked < job["window"]:
            sent += 1
            sock.sendall(template.stamp(sent))
        count = sock.recv_into(view[filled:])
        if count == 0:
            raise WrongAnswer("the broker closed the connection")
        filled += count
        pos = 0
        while filled - pos >= 4:
            length = int.from_bytes(view[pos : pos + 4], "big") + 4
            if filled - pos < length:
                break
            acked += 1
            template.verify(view[pos : pos + length], length, acked)
            pos += length
        view[: filled - pos] = bytes(view[pos:filled])
        filled -= pos
    seconds = (time.perf_counter_ns() - start) / 1e9
    sock.close()
    return {
        "requests": wanted,
        "seconds": seconds,
        "bytes": wanted * len(batch),
        "mb_per_s": wanted * len(batch) / seconds / 1e6,
        "batch_bytes": len(batch),
        "total_requests": wanted,
        "total_records": wanted * job["records"],
    }


def read_backlog(job: Result) -> Result:
    """Read partition 0 from `start_offset` to its end, one Fetch in flight; walk only the batch headers.

    With `check`, the CRC of every batch and the chain of offsets are verified as well (outside timed runs).
    """
    template = FetchTemplate(
        job["topic"], 0, max_bytes=FETCH_MAX_BYTES, partition_max_bytes=PARTITION_FETCH_BYTES
    )
    sock = connect(job["host"], job["port"])
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 * 1024 * 1024)
    buffer = bytearray(PARTITION_FETCH_BYTES + RECV_BYTES)
    offset = job.get("start_offset", 0)
    correlation_id = total_bytes = 0
    high_watermark = offset + 1
    check = bool(job.get("check"))
    start = time.perf_counter_ns()
    while offset < high_watermark:
        correlation_id += 1
        sock.sendall(template.stamp(correlation_id, offset))
        length = _receive_frame(sock, buffer)
        with memoryview(buffer) as whole, whole[:length] as frame:
            high_watermark, pos, end = template.records(frame, correlation_id)
            before = offset
            while end - pos >= 61:
                base_offset, next_offset, batch_bytes = batch_span(frame, pos)
                if pos + batch_bytes > end:
                    break
                if base_offset != offset or (check and not batch_is_sound(frame, pos, batch_bytes)):
                    raise WrongAnswer(f"a bad batch at offset {offset} (base offset {base_offset})")
                offset = next_offset
                pos += batch_bytes
                total_bytes += batch_bytes
            if offset == before and high_watermark > offset:
                raise WrongAnswer(f"no whole batch at offset {offset}")
    seconds = (time.perf_counter_ns() - start) / 1e9
    sock.close()
    return {
        "requests": correlation_id,
        "seconds": seconds,
        "bytes": total_bytes,
        "records": offset - job.get("start_offset", 0),
        "gb_per_s": total_bytes / seconds / 1e9,
    }


def first_ack(job: Result) -> Result:
    """Try until a record is acknowledged; for `timeout_s`. The answer is the moment (monotonic ns)."""
    template = templates_for(job["topic"], 1, job["record_bytes"], "turns", 1)[0]
    deadline = time.monotonic() + job["timeout_s"]
    attempts = 0
    last: Exception | None = None
    while time.monotonic() < deadline:
        attempts += 1
        try:
            with connect(job["host"], job["port"], 5.0) as sock:
                producer = Producer(sock, [template], 0)
                while time.monotonic() < deadline:
                    producer.send()
                    while not producer.receive():
                        pass
                    return {"acked_ns": time.monotonic_ns(), "attempts": attempts}
        except (OSError, WrongAnswer, struct.error) as error:
            last = error
            time.sleep(0.005)
    raise WrongAnswer(f"no record acknowledged within {job['timeout_s']} s: {last}")


def leader_loss(job: Result) -> Result:
    """Write to the leader of partition 0 until it is gone, then to whoever takes over; when (monotonic ns).

    `ports` are the leader's and then the other nodes'. No client library waits in between: a node that
    refuses is asked again 5 ms later, in turn.
    """
    template = templates_for(job["topic"], 1, job["record_bytes"], "turns", 1)[0]
    deadline = time.monotonic() + job["timeout_s"]
    acked, last_ack_ns = 0, 0
    try:
        with connect(job["host"], job["ports"][0], 10.0) as sock:
            producer = Producer(sock, [template], 0)
            while time.monotonic() < deadline:
                producer.send()
                while not producer.receive():
                    pass
                acked, last_ack_ns = acked + 1, time.monotonic_ns()
    except (OSError, WrongAnswer):
        pass
    if not acked:
        raise WrongAnswer("the leader took nothing before it was lost")
    attempts = 0
    others = job["ports"][1:]
    while time.monotonic() < deadline:
        port = others[attempts % len(others)]
        attempts += 1
        try:
            with connect(job["host"], port, 10.0) as sock:
                producer = Producer(sock, [template], 0)
                producer.send()
                while not producer.receive():
                    pass
                acked_ns = time.monotonic_ns()
                return {
                    "acked": acked + 1,
                    "last_ack_ns": last_ack_ns,
                    "acked_ns": acked_ns,
                    "attempts": attempts,
                }
        except (OSError, WrongAnswer, struct.error):
            time.sleep(0.005)
    raise WrongAnswer(f"no record acknowledged within {job['timeout_s']} s of the leader's loss")


def client_closed_loop(job: Result) -> Result:
    """Closed-loop producers that are a real client (`client_load.py`, imported here: it is slow to load)."""
    from bench import client_load

    done = client_load.client_closed_loop(job)
    count = done["within"]
    return {
        "requests": count,
        "seconds": job["seconds"],
        "requests_per_s": count / job["seconds"],
        "mb_per_s": count * job["record_bytes"] / job["seconds"] / 1e6,
        "total_requests": done["total"],
        "total_records": done["total"],
        **quantiles(done["latencies"]),
    }


def client_transactions(job: Result) -> Result:
    """One transactional producer that is a real client, one transaction after another."""
    from bench import client_load

    done = client_load.transactions(job)
    commits = quantiles(done["commits"])
    return {
        "transactions_per_s": len(done["latencies"]) / job["seconds"],
        "total_transactions": done["total"],
        "total_records": 2 * job["partitions"] * done["total"],  # a marker beside each
        "commit_p50_ms": commits["p50_ms"],
        "commit_p99_ms": commits["p99_ms"],
        **quantiles(done["latencies"]),
    }


def atomic_appends(job: Result) -> Result:
    """Appends to all of `partitions` at once, one after another; `bare`: without Lockstep's own client."""
    from bench import append_load

    work = append_load.bare if job.get("bare") else append_load.through_client
    latencies, total = asyncio.run(work(job))
    return {
        "transactions_per_s": len(latencies) / job["seconds"],
        "total_transactions": total,
        "total_records": job["partitions"] * total,
        **quantiles(latencies),
    }


def fill_feed(job: Result) -> Result:
    """A topic of transactions."""
    from bench.feed import load as feed_load

    return asyncio.run(feed_load.fill(job))


def read_feed(job: Result) -> Result:
    """A topic of transactions, read as a client's feed does."""
    from bench.feed import load as feed_load

    return asyncio.run(feed_load.read(job))


def commit_loop(job: Result) -> Result:
    """`producers` closed loops that commit offsets, each for a group of its own, from outside."""
    groups = [f"{job['group']}-{number}" for number in range(job["producers"])]
    for group in groups:
        asyncio.run(await_coordinator(job["host"], job["port"], group))
    committers = [
        Producer(connect(job["host"], job["port"]), [CommitTemplate(group, job["topic"], 0)], 0)
        for group in groups
    ]
    window = Window(job["warmup_s"], job["seconds"])
    totals = _many_producers(committers, window)
    for committer in committers:
        committer.sock.close()
    return window.result(*totals)


def fan_out(job: Result) -> Result:
    """A writer and several groups that read it meanwhile."""
    from bench.fan_out import fan_out as run

    return run(job, connect)


def lanes(job: Result) -> Result:
    """Producers with several requests in flight, at a rate or as fast as they can."""
    from bench.lanes import run_lanes

    return run_lanes(job, connect, quantiles)


def random_read(job: Result) -> Result:
    """Single fetches at random places."""
    from bench.growth.reading import random_read as run

    return run(job, connect, _receive_frame, quantiles)


def hold_connections(job: Result) -> Result:
    """Open `connections`, have each answered once, say so, and hold them until standard input ends."""
    probe = struct.pack(">hhih", 3, 1, 1, -1) + struct.pack(">i", 0)  # Metadata v1 of no topic
    buffer = bytearray(RECV_BYTES)
    held = []
    for _ in range(job["connections"]):
        sock = connect(job["host"], job["port"])
        sock.sendall(struct.pack(">i", len(probe)) + probe)
        _receive_frame(sock, buffer)
        held.append(sock)
    print(json.dumps({"held": len(held)}), flush=True)
    sys.stdin.read()
    for sock in held:
        sock.close()
    return {"connections": len(held)}


JOBS = {
    "hold_connections": hold_connections,
    "random_read": random_read,
    "fan_out": fan_out,
    "lanes": lanes,
    "atomic_appends": atomic_appends,
    "commit_loop": commit_loop,
    "side_by_side": side_by_side,
    "rebalance": rebalance,
    "hold_members": hold_members,
    "closed_loop": closed_loop,
    "client_closed_loop": client_closed_loop,
    "client_transactions": client_transactions,
    "fill": fill,
    "fill_feed": fill_feed,
    "read_feed": read_feed,
    "read_backlog": read_backlog,
    "first_ack": first_ack,
    "leader_loss": leader_loss,
}


def main() -> int:
    """Run the job in argv[1]; its result, or {"error": ...}, on stdout."""
    job = json.loads(sys.argv[1])
    gc.disable()
    try:
        result = JOBS[job["job"]](job)
    except Exception as error:
        traceback.print_exc()
        print(json.dumps({"error": f"{type(error).__name__}: {error}"}))
        return 1
    print(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
