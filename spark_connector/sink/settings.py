"""The sink's options: names as Spark's Kafka sink has them where they mean the same.

Owns: `SinkSettings`. Invariants: every option is known, or rejected by its name with the option to use
instead (`OptionError`, as in the source).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from lockstep.protocol.records.compression import Codec
from spark_connector.options import SECURITY_NAMES, OptionError, security_properties, unknown_option

BOOTSTRAP: Final = "kafka.bootstrap.servers"
TOPIC: Final = "topic"
COMMIT_TOPIC: Final = "commitTopic"
BATCH_BYTES: Final = "kafka.batch.size"
COMPRESSION: Final = "kafka.compression.type"
TIMEOUT: Final = "kafka.request.timeout.ms"
INCLUDE_HEADERS: Final = "includeHeaders"
ACCEPT_EPOCH: Final = "acceptEpoch"

_NAMES: Final = (
    BOOTSTRAP,
    TOPIC,
    COMMIT_TOPIC,
    BATCH_BYTES,
    COMPRESSION,
    TIMEOUT,
    INCLUDE_HEADERS,
    ACCEPT_EPOCH,
    *SECURITY_NAMES,
)
_SPARKS_OWN: Final = frozenset({"path", "checkpointlocation", "queryname"})
_KNOWN: Final = _SPARKS_OWN.union(name.lower() for name in _NAMES)
_MEANINGLESS: Final[Mapping[str, str]] = {
    "kafka.transactional.id": "the sink is exactly once by itself",
    "kafka.enable.idempotence": "writing is idempotent always",
    "kafka.acks": "the sink waits for all replicas always",
}
DEFAULT_BATCH_BYTES: Final = 512 * 1024
MAX_BATCH_BYTES: Final = 64 << 20


@dataclass(frozen=True)
class SinkSettings:
    """The settings of one write."""

    bootstrap: str
    topic: str | None
    """The topic of all rows; the option wins over the column, as in Spark's Kafka sink."""
    commit_topic: str | None
    """None: the topic that belongs to the log group."""
    batch_bytes: int
    codec: Codec
    timeout_s: float
    accepted_epoch: int | None = None
    """An epoch that counts as done where it is committed, with any number of rows."""
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Kafka's client properties of TLS and SASL."""

    @classmethod
    def of(cls, options: Mapping[str, str]) -> SinkSettings:
        """Parses Spark's options, in any case of letters. Raises OptionError."""
        given = {name.lower(): text for name, text in options.items()}
        if not given.get(BOOTSTRAP):
            raise OptionError(BOOTSTRAP, "is missing: set HOST:PORT of one broker or several")
        for name in options:
            if name.lower() in _MEANINGLESS:
                raise OptionError(name, f"has no meaning here: {_MEANINGLESS[name.lower()]}; leave it out")
            if name.lower() not in _KNOWN:
                raise unknown_option(name, _NAMES)
        codecs = {codec.name.lower(): codec for codec in Codec}
        codec = codecs.get(given.get(COMPRESSION, "none").lower())
        if codec is None:
            raise OptionError(COMPRESSION, f"{given[COMPRESSION]!r} is none of {', '.join(codecs)}")
        return cls(
            given[BOOTSTRAP],
            given.get(TOPIC),
            given.get(COMMIT_TOPIC.lower()),
            _number(given, BATCH_BYTES, DEFAULT_BATCH_BYTES, MAX_BATCH_BYTES),
            codec,
            _number(given, TIMEOUT, 60_000, 86_400_000) / 1000,
            _epoch(given.get(ACCEPT_EPOCH.lower())),
            security_properties(given),
        )


def _epoch(text: str | None) -> int | None:
    if text is not None and not text.isdecimal():
        raise OptionError(ACCEPT_EPOCH, f"{text!r} is not the number of an epoch")
    return None if text is None else int(text)


def _number(given: Mapping[str, str], name: str, default: int, most: int) -> int:
    text = given.get(name)
    if text is None:
        return default
    if not text.isdecimal() or not 0 < int(text) <= most:
        raise OptionError(name, f"{text!r} is not a whole number from 1 to {most}")
    return int(text)
