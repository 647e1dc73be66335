"""Locks on the wire: the names of record headers, limits, the tagged field, the prefix of a rejection's text.

Broker and clients share them. The grammar is `lockstep.broker.locks.lock_headers`'. Source: the project's
rules for locks (docs/locks.md).
"""

from __future__ import annotations

from typing import Final

PREFIX: Final = "lockstep-"
HWM: Final = "lockstep-hwm"
WRITE: Final = "lockstep-write-lock"
READ: Final = "lockstep-read-lock"
APPEND: Final = "lockstep-append-lock"
EXPECTED: Final = "lockstep-expected-offset"
TOPIC_ID: Final = "lockstep-topic-id"
REQUEST: Final = "lockstep-request"
PART: Final = "lockstep-part"

MAX_LOCK_NAMES: Final = 256
"""Lock names of one record."""
MAX_LOCK_NAME_BYTES: Final = 1024
"""Bytes of a lock name."""

ATOMIC_TAG: Final = 10_000
"""The tag of a Produce request that is appended as a whole, or not at all; its value is empty."""
REJECTION_PREFIX: Final = "LOCKSTEP_REFUSED "
"""The text of a rejection begins with it."""
