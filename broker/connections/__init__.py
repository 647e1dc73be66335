"""Clients' connections: frames in, replies out, and how much a client may have the broker hold.

| concern | files |
|---|---|
| where this node listens | `own_listeners` (each with its setting), `listeners` (sockets, how many clients) |
| one client | `connection` (its requests and their order), `replies` (encoding of responses) |
| all clients | `connections` (limits, joint writes), `unfinished_frames` (memory of large requests) |

Does not: know what a request means (`broker/router.py`).
"""
