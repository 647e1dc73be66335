"""The failures of a round: those that end its block, those that end its session."""

from __future__ import annotations

from confluent_kafka import KafkaException

from compat_tests.targets import TargetFailed


class RoundFailed(RuntimeError):
    """A block could not be measured: wrong answers, lost records, a broker that died."""


class WrongCount(RoundFailed):
    """The log has not as many records as were acknowledged: a fault of the broker's, never tried again."""


FAILURES = (RoundFailed, TargetFailed, KafkaException)
"""What ends a session and not the run."""
