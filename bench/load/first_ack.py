"""The moment of the first acknowledgement: after a start, or after a leader is lost. No client library waits
in between: who refuses is asked again 5 ms later."""

from __future__ import annotations

import struct
import time
from typing import Any

from bench.load.closed_loop import Producer, templates_for
from bench.load.connection import connect
from bench.load.wire import ProduceTemplate, WrongAnswer

CONNECT_TIMEOUT_S = 10.0
RETRY_S = 0.005
REFUSED = (OSError, WrongAnswer, struct.error)

Result = dict[str, Any]


def _acknowledged(host: str, port: int, template: ProduceTemplate) -> int:
    """One record, over a new connection; when it was acknowledged (monotonic ns). Raises REFUSED."""
    with connect(host, port, CONNECT_TIMEOUT_S) as sock:
        Producer(sock, [template], 0).ask()
        return time.monotonic_ns()


def first_ack(job: Result) -> Result:
    """Try until a record is acknowledged; for `timeout_s`."""
    return _first_of(job, [job["port"]])


def leader_loss(job: Result) -> Result:
    """Write to the leader of partition 0 until it is gone, then to whoever takes over.

    `ports` are the leader's and then the other nodes', which are asked in turn.
    """
    (template,) = templates_for(job["topic"], 1, job["record_bytes"], "turns", 1)
    deadline = time.monotonic() + job["timeout_s"]
    acked, last_ack_ns = 0, 0
    try:
        with connect(job["host"], job["ports"][0], CONNECT_TIMEOUT_S) as sock:
            producer = Producer(sock, [template], 0)
            while time.monotonic() < deadline:
                producer.ask()
                acked, last_ack_ns = acked + 1, time.monotonic_ns()
    except (OSError, WrongAnswer):
        pass
    if not acked:
        raise WrongAnswer("the leader took nothing before it was lost")
    found = _first_of({**job, "timeout_s": deadline - time.monotonic()}, job["ports"][1:])
    return {"acked": acked + 1, "last_ack_ns": last_ack_ns, **found}


def _first_of(job: Result, ports: list[int]) -> Result:
    """When (monotonic ns) one of them acknowledged a record, and at which attempt. WrongAnswer."""
    (template,) = templates_for(job["topic"], 1, job["record_bytes"], "turns", 1)
    deadline = time.monotonic() + job["timeout_s"]
    attempts = 0
    last: Exception | None = None
    while time.monotonic() < deadline:
        port = ports[attempts % len(ports)]
        attempts += 1
        try:
            return {"acked_ns": _acknowledged(job["host"], port, template), "attempts": attempts}
        except REFUSED as error:
            last = error
            time.sleep(RETRY_S)
    raise WrongAnswer(f"no record acknowledged within {job['timeout_s']:.1f} s: {last}")
