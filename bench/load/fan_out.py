"""One writer and several groups that read all it writes, at the same time: what reaches the readers.

Owns: the job "fan_out": one process, one epoll; a pipelined writer of partition 0 and `groups` raw readers,
each on a connection of its own with one Fetch in flight, until each has read everything. At its end each
group commits its position, and that is awaited. Invariant: every batch is there, in order, for every reader.
Does not do: decode records, or a client's own queues; it measures the broker.
"""

from __future__ import annotations

import asyncio
import select
import socket
import time
from typing import Any

from bench.load.backlog import Reader
from bench.load.connection import ResponseReader, connect, ready
from bench.load.members import await_coordinator
from bench.load.pipelined_loop import PipelinedProducer
from bench.load.wire import CommitTemplate, ProduceTemplate, record_batch

Result = dict[str, Any]


def commit(sock: socket.socket, group: str, topic: str, offset: int) -> None:
    """Commit a position and await the response. UnexpectedResponse."""
    template = CommitTemplate(group, topic, 0)
    sock.sendall(template.stamp(offset))
    template.verify(ResponseReader(sock).wait(), offset)


def fan_out(job: Result) -> Result:
    """Write `total_bytes` in batches of `records`, `window` in flight, while `groups` groups read them."""
    host, port, topic = job["host"], job["port"], job["topic"]
    names = [f"{topic}-group-{number}" for number in range(job["groups"])]
    coordinators = [asyncio.run(await_coordinator(host, port, name)) for name in names]
    batch = record_batch(job["records"], job["record_bytes"], time.time_ns() // 1_000_000)
    total_requests = -(-job["total_bytes"] // len(batch))
    producer = PipelinedProducer(
        connect(host, port), [ProduceTemplate(topic, {0: batch}, job["records"])], job["window"]
    )
    readers = [Reader(connect(host, port), topic, 0) for _ in names]
    began = time.perf_counter()
    written_s = _run(producer, total_requests, readers, total_requests * job["records"])
    for name, at, reader in zip(names, coordinators, readers, strict=True):
        with connect(host, at) as sock:
            commit(sock, name, topic, reader.offset)
    seconds = time.perf_counter() - began
    for sock in (producer.sock, *(reader.sock for reader in readers)):
        sock.close()
    delivered = sum(reader.bytes for reader in readers)
    return {
        "groups": len(readers),
        "seconds": seconds,
        "written_s": written_s,
        "fetches": sum(reader.fetches for reader in readers),
        "bytes": delivered,
        "mb_per_s": delivered / seconds / 1e6,
        "total_requests": total_requests,
        "total_records": total_requests * job["records"],
    }


def _run(producer: PipelinedProducer, total_requests: int, readers: list[Reader], end: int) -> float:
    """Until all is written and read by all up to `end`; seconds until all was written. UnexpectedResponse."""
    began = time.perf_counter()
    poll = select.epoll()
    by_fd = {reader.sock.fileno(): reader for reader in readers}
    for number in (producer.sock.fileno(), *by_fd):
        poll.register(number, select.EPOLLIN)
    for reader in readers:
        reader.send_fetch()
    sent = min(total_requests, producer.window)
    for _ in range(sent):
        producer.schedule(0)
    written_s = 0.0
    while producer.waiting or not all(reader.offset >= end for reader in readers):
        for number in ready(poll):
            if number in by_fd:
                reader = by_fd[number]
                if reader.receive() >= 0 and reader.offset < end:
                    reader.send_fetch()
                continue
            producer.receive()
            while sent < total_requests and producer.has_room:
                sent += 1
                producer.schedule(0)
            if not producer.waiting:
                written_s = time.perf_counter() - began
    poll.close()
    return written_s
