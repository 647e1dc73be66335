"""Connections that send nothing: what they cost a broker is for the harness to see."""

from __future__ import annotations

import json
import struct
import sys
from typing import Any

from bench.load.connection import ResponseReader, connect
from bench.load.wire import check_correlation_id

Result = dict[str, Any]


def hold_connections(job: Result) -> Result:
    """Open `connections`, have one response on each, report that, and keep them until standard input ends."""
    held = []
    for number in range(1, job["connections"] + 1):
        sock = connect(job["host"], job["port"])
        probe = struct.pack(">hhih", 3, 1, number, -1) + struct.pack(">i", 0)  # Metadata v1 of no topic
        sock.sendall(struct.pack(">i", len(probe)) + probe)
        check_correlation_id(ResponseReader(sock).wait(), number)
        held.append(sock)
    print(json.dumps({"held": len(held)}), flush=True)
    sys.stdin.read()
    for sock in held:
        sock.close()
    return {"connections": len(held)}
