"""The moment of the first acknowledgement: after a start, or after a leader is lost. No client library waits
in between: a node that rejects the request gets it again 5 ms later."""

from __future__ import annotations

import struct
import time
from typing import Any

from bench.load.closed_loop import ClosedLoopClient, templates_for
from bench.load.connection import connect
from bench.load.wire import ProduceTemplate, UnexpectedResponse

START_TIMEOUT_S = 5.0
LOSS_TIMEOUT_S = 10.0
"""How long one connection is waited for, and one response: of a broker that starts, of nodes that elect."""
RETRY_S = 0.005
RETRIABLE = (OSError, UnexpectedResponse, struct.error)

Result = dict[str, Any]


def first_ack(job: Result) -> Result:
    """Try until a record is acknowledged; for `timeout_s`."""
    deadline = time.monotonic() + job["timeout_s"]
    found = _first_of(job["host"], [job["port"]], _template(job), deadline, START_TIMEOUT_S)
    if found is None:
        raise UnexpectedResponse(f"no record acknowledged within {job['timeout_s']} s")
    return found


def leader_loss(job: Result) -> Result:
    """Write to the leader of partition 0 until it is gone, then to the next leader; for `timeout_s`.

    `ports` are the leader's and then the other nodes', which are tried in turn. `lost_ns` is when the leader
    took no more: it may have ended, or lead no longer.
    """
    template = _template(job)
    deadline = time.monotonic() + job["timeout_s"]
    acked, last_ack_ns = 0, 0
    try:
        with connect(job["host"], job["ports"][0], LOSS_TIMEOUT_S) as sock:
            producer = ClosedLoopClient(sock, [template], 0)
            while time.monotonic() < deadline:
                producer.call()
                acked, last_ack_ns = acked + 1, time.monotonic_ns()
    except (OSError, UnexpectedResponse):
        lost_ns = time.monotonic_ns()
    else:
        raise UnexpectedResponse(f"the leader was not lost within {job['timeout_s']} s")
    if not acked:
        raise UnexpectedResponse("the leader took nothing before it was lost")
    found = _first_of(job["host"], job["ports"][1:], template, deadline, LOSS_TIMEOUT_S)
    if found is None:
        raise UnexpectedResponse(f"no record acknowledged within {job['timeout_s']} s of the leader's loss")
    return {"acked": acked + 1, "last_ack_ns": last_ack_ns, "lost_ns": lost_ns, **found}


def _template(job: Result) -> ProduceTemplate:
    (template,) = templates_for(job["topic"], 1, job["record_bytes"], "turns", 1)
    return template


def _first_of(
    host: str, ports: list[int], template: ProduceTemplate, deadline: float, timeout_s: float
) -> Result | None:
    """The time (monotonic ns) and the attempt of the first acknowledgement; None without one."""
    attempts = 0
    while time.monotonic() < deadline:
        port = ports[attempts % len(ports)]
        attempts += 1
        try:
            with connect(host, port, timeout_s) as sock:
                ClosedLoopClient(sock, [template], 0).call()
                return {"acked_ns": time.monotonic_ns(), "attempts": attempts}
        except RETRIABLE:
            time.sleep(RETRY_S)
    return None
