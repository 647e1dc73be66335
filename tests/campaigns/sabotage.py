"""`python -m tests.campaigns.sabotage serve ...`: Lockstep without its memory of producers, for one test.

Owns: faults planted into a real broker process, to show that the kill -9 campaign notices them. Here: every
batch of an idempotent producer is taken for a new one, and answers are held back so long that a kill
finds some that were committed and not yet told. The lost-write fault needs no code: `test_sabotage.py`
puts an older copy of the data directory back.
"""

from __future__ import annotations

import sys

from lockstep.broker.produce.producer_state import NEW, ProducerState
from lockstep.cli import main
from lockstep.storage.log_group import LogGroup
from lockstep.storage.waiters import Waiter

ANSWER_DELAY_S = 0.05


def forget_producers() -> None:
    """Takes every batch for new, and delays what waits for a commit."""
    honest = LogGroup.when_committed

    def late(self: LogGroup, waiter: Waiter) -> None:
        honest(self, lambda error: (self._loop.call_later(ANSWER_DELAY_S, waiter, error), None)[1])

    ProducerState.check = lambda self, partition, header: NEW  # type: ignore[method-assign]
    LogGroup.when_committed = late  # type: ignore[method-assign]


if __name__ == "__main__":
    forget_producers()
    sys.exit(main())
