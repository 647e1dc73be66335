"""`python -m bench.load JOB`: run the job, given as JSON, and print its result as JSON, so that the harness
can sample the broker meanwhile.

Invariants: every response's correlation id is checked, and its error codes; a job that sees an unexpected
response fails. Latencies are int64 nanoseconds of the monotonic clock. Exit status: 0; 1 for a job that
failed, which says {"error": ...}; 2 for what is no JSON; 130 when it was interrupted.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import traceback
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from bench.load.wire import UnexpectedResponse

JOBS = {
    "hold_connections": "bench.load.idle",
    "closed_loop": "bench.load.closed_loop",
    "commit_loop": "bench.load.closed_loop",
    "pipelined_loop": "bench.load.pipelined_loop",
    "fill": "bench.load.backlog",
    "read_backlog": "bench.load.backlog",
    "fan_out": "bench.load.fan_out",
    "first_ack": "bench.load.first_ack",
    "leader_loss": "bench.load.first_ack",
    "rebalance": "bench.load.members",
    "hold_members": "bench.load.members",
    "client_closed_loop": "bench.load.clients",
    "client_transactions": "bench.load.clients",
    "atomic_appends": "bench.load.appends",
    "random_read": "bench.load.random_read",
    "open_loop": "bench.logstore.client",
    "describe_tls": "bench.load.tls_socket",
    "fill_feed": "bench.load.feed",
    "read_feed": "bench.load.feed",
}
"""Where each job is, a function of that name; imported when it runs, as real clients are slow to load."""


def run(job: dict[str, Any]) -> dict[str, Any]:
    """The job's result. Raises UnexpectedResponse, OSError, and what clients raise."""
    name = job["job"]
    if name not in JOBS:
        raise UnexpectedResponse(f"there is no job {name!r}, but {', '.join(JOBS)}")
    result: dict[str, Any] = getattr(import_module(JOBS[name]), name)(job)
    return result


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; its exit status."""
    parser = argparse.ArgumentParser(prog="python -m bench.load", description=__doc__)
    parser.add_argument("job", type=json.loads, metavar="JOB", help="a JSON object")
    job = parser.parse_args(arguments).job
    gc.disable()
    try:
        result = run(job)
    except KeyboardInterrupt:
        return 130
    except KeyError as error:
        print(json.dumps({"error": f"the job lacks the word {error}"}))
        return 1
    except Exception as error:
        traceback.print_exc()
        print(json.dumps({"error": f"{type(error).__name__}: {error}"}))
        return 1
    print(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
