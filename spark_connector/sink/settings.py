"""The sink's options: names as Spark's Kafka sink has them where they mean the same.

Owns: `SinkSettings`. Invariants: every option is known, or refused by its name with what to use instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from protocol.records.compression import Codec

BOOTSTRAP: Final = "kafka.bootstrap.servers"
TOPIC: Final = "topic"
COMMIT_TOPIC: Final = "committopic"
BATCH_BYTES: Final = "kafka.batch.size"
COMPRESSION: Final = "kafka.compression.type"
SECURITY: Final = "kafka.security.protocol"
TIMEOUT: Final = "kafka.request.timeout.ms"
INCLUDE_HEADERS: Final = "includeheaders"

_SPARKS_OWN: Final = frozenset({"path", "checkpointlocation", "queryname"})
_MEANINGLESS: Final[Mapping[str, str]] = {
    "kafka.transactional.id": "the sink is exactly once by itself",
    "kafka.enable.idempotence": "writing is idempotent always",
    "kafka.acks": "the sink waits for all replicas always",
}
DEFAULT_BATCH_BYTES: Final = 512 * 1024
LARGEST_BATCH_BYTES: Final = 64 << 20


class BadOption(ValueError):
    """An option that cannot be what it says; the text names it."""


@dataclass(frozen=True)
class SinkSettings:
    """What one write is told."""

    bootstrap: str
    topic: str | None
    """For rows without a topic; an option wins over the column, as in Spark's Kafka sink."""
    commit_topic: str | None
    """None for one that belongs to the log group."""
    batch_bytes: int
    codec: Codec
    security: str
    timeout_s: float

    @classmethod
    def of(cls, options: Mapping[str, str]) -> SinkSettings:
        """From Spark's options, in whatever case. Raises BadOption."""
        given = {name.lower(): text for name, text in options.items()}
        if not given.get(BOOTSTRAP):
            raise BadOption('the option "kafka.bootstrap.servers" is missing: brokers as HOST:PORT,HOST:PORT')
        for name in given:
            if name in _MEANINGLESS:
                raise BadOption(f'the option "{name}" has no meaning here: {_MEANINGLESS[name]}')
        unknown = given.keys() - _KNOWN - _SPARKS_OWN
        if unknown:
            names = ", ".join(sorted(unknown))
            raise BadOption(f'format("lockstep") does not know these options for writing: {names}')
        codecs = {codec.name.lower(): codec for codec in Codec}
        codec = codecs.get(given.get(COMPRESSION, "none").lower())
        if codec is None:
            raise BadOption(
                f'the option "{COMPRESSION}" is one of {", ".join(codecs)}, not {given[COMPRESSION]}'
            )
        return cls(
            given[BOOTSTRAP],
            given.get(TOPIC),
            given.get(COMMIT_TOPIC),
            _number(given, BATCH_BYTES, DEFAULT_BATCH_BYTES, LARGEST_BATCH_BYTES),
            codec,
            given.get(SECURITY, "PLAINTEXT"),
            _number(given, TIMEOUT, 60_000, 86_400_000) / 1000,
        )


_KNOWN: Final = frozenset(
    {BOOTSTRAP, TOPIC, COMMIT_TOPIC, BATCH_BYTES, COMPRESSION, SECURITY, TIMEOUT, INCLUDE_HEADERS}
)


def _number(given: Mapping[str, str], name: str, default: int, most: int) -> int:
    text = given.get(name)
    if text is None:
        return default
    if not text.isdecimal() or not 0 < int(text) <= most:
        raise BadOption(f'the option "{name}" is a number from 1 to {most}, not {text!r}')
    return int(text)
