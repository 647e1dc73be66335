"""Every bound of the transports, with its reason."""

from __future__ import annotations

MESSAGE_BYTES = 4 << 20
"""One message: what gRPC takes by default in every language, and four times the player's bound on a batch."""

PART_HEAD_BYTES = 32
"""What a part takes of a message besides its payload, at most, whichever the transport."""

HELLO_TIMEOUT_S = 10.0
"""How long a new stream may say nothing. Players give up after 3 seconds without an answer."""

MOST_STREAMS = 1000
"""Streams that one target serves at once; each holds one unfinished message at most."""

LONGEST_REASON = 1000
"""Characters of why a stream was ended; gRPC sends them in a header, which may have 8 KB."""

UNSENT_BYTES = 256 << 10
"""Of raw frames: a batch counts as written when less than that waits for the kernel to take it."""

DEAD_S = 30
"""Without a sign from the other side's kernel, a connection that has nothing to say is over after twice that.

A target looks for players that are gone; a player knows by its own heartbeats. gRPC's own keepalive is not
for players: servers in C and Go hang up on who pings more often than every five minutes.
"""
LINGER_S = 5.0
"""How long the last words to who does not read may wait."""
