"""Transactions that take too long, and transactional ids that nobody needs any more.

Owns: the two loops, a little at a time. Invariants: only ids coordinated here are touched; what is decided
from committed state is looked at once more when it is the id's turn, so that nothing follows a change it does
not know of.
Source: Kafka's TransactionStateManager.timedOutTransactions and removeExpiredTransactionalIds.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from lockstep.broker.coordination.stable_since import StableSince
from lockstep.broker.metadata.metadata_cache import Cluster
from lockstep.broker.transactions.transaction_coordinators import Transactions
from lockstep.broker.transactions.transaction_rules import is_expired, is_overdue

log = logging.getLogger("lockstep.transactions")

IDS_PER_STEP: Final = 2_000
"""Ids looked at before others are served: about a millisecond."""
ENDED_PER_STEP: Final = 100
"""And so many of them ended: each is an entry, or a part of one."""


class TransactionExpiration:
    """The loops over one broker's transactional ids."""

    def __init__(self, transactions: Transactions, cluster: Cluster) -> None:
        self._transactions = transactions
        self._cluster = cluster
        self._serials: StableSince[str, int] = StableSince()
        """Of the transactions under way."""

    async def run(self) -> None:
        """Abort what is overdue every so often, until cancelled; and forget ids, every now and then."""
        loop = asyncio.get_running_loop()
        forget_at = loop.time() + self._forget_seconds
        while True:
            settings = self._cluster.settings
            await asyncio.sleep(settings.transaction_abort_timed_out_transaction_cleanup_interval_ms / 1000)
            try:
                await self.abort_overdue()
                if loop.time() >= forget_at:
                    forget_at = loop.time() + self._forget_seconds
                    await self.forget_expired()
            except Exception:  # a transaction that nobody ends holds readers up for ever
                log.exception("a look at transactional ids failed")

    @property
    def _forget_seconds(self) -> float:
        return self._cluster.settings.transaction_remove_expired_transaction_cleanup_interval_ms / 1000

    async def abort_overdue(self) -> int:
        """Begin to abort every transaction that takes too long; how many."""
        found = looked = 0
        unchanged_seconds = self._serials.observe(asyncio.get_running_loop().time())
        for coordinator in self._transactions.coordinators():
            for name in list(coordinator.state.ongoing_ids):
                current, serial = coordinator.state.get(name), coordinator.state.serial(name)
                if current is not None and serial is not None:
                    # One that began in a time that is still to come is late by how long it has been seen.
                    is_late = unchanged_seconds(name, serial) * 1000 > current.timeout_ms
                    if is_late or is_overdue(current, coordinator.clock_ms()):
                        coordinator.abort_overdue(name, serial)
                        found += 1
                looked += 1
                if looked % IDS_PER_STEP == 0 or (found and found % ENDED_PER_STEP == 0):
                    await asyncio.sleep(0)
        return found

    async def forget_expired(self) -> int:
        """Begin to forget every id that was not used for long; how many."""
        expiration_ms = self._cluster.settings.transactional_id_expiration_ms
        found = looked = 0
        for coordinator in self._transactions.coordinators():
            for name in list(coordinator.state.ids):
                current = coordinator.state.get(name)
                if current is not None and is_expired(current, coordinator.clock_ms(), expiration_ms):
                    coordinator.forget_expired(name, expiration_ms)
                    found += 1
                looked += 1
                if looked % IDS_PER_STEP == 0 or (found and found % ENDED_PER_STEP == 0):
                    await asyncio.sleep(0)
        return found
