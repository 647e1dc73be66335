"""Every bound of the transports, with its reason."""

from __future__ import annotations

MESSAGE_BYTES = 4 << 20
"""One message: gRPC's default limit in every language, and four times the player's bound on a batch."""

PART_HEADER_BYTES = 32
"""The largest overhead of a part besides its payload, over all transports."""

HELLO_TIMEOUT_S = 10.0
"""The longest wait for a new stream's Hello. Players abort after 3 seconds without a response."""

MAX_STREAMS = 1000
"""Streams that one target serves at once; each holds one unfinished message at most."""

MAX_REASON_CHARS = 1000
"""Characters of the reason why a stream was ended; gRPC sends them in a header, which may have 8 KB."""

UNSENT_BYTES = 256 << 10
"""The write buffer of raw frames: a batch counts as written when less than that is unsent."""

KEEPALIVE_S = 30
"""An idle connection whose peer's kernel does not respond is closed after twice that.

Only targets probe: a player has its own heartbeats. gRPC's own keepalive is not for players: servers in C and
Go close the connection of a client that pings more often than every five minutes.
"""
LINGER_S = 5.0
"""The longest wait for a peer that does not read to take the last message."""
