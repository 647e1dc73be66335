"""Aborts transactions past their timeout, and removes expired transactional ids.

Owns: the two rules, enforced a little at a time. Invariants: only ids coordinated here are touched; what is
decided from committed state is checked again when the id's request runs, so that no change is missed.
Source: Kafka's TransactionStateManager.timedOutTransactions and removeExpiredTransactionalIds.
"""

from __future__ import annotations

import asyncio
from typing import Final

from lockstep.broker.coordination.expiration_loop import ExpirationRule
from lockstep.broker.coordination.stable_since import StableSince
from lockstep.broker.metadata.metadata_cache import MetadataCache
from lockstep.broker.transactions.transaction_coordinators import TransactionCoordinators
from lockstep.broker.transactions.transaction_rules import is_expired, is_overdue

IDS_PER_STEP: Final = 2_000
"""Ids checked before others are served: about a millisecond."""
ENDED_PER_STEP: Final = 100
"""The maximum of transactions that are ended in a step: each is an entry, or a part of one."""


class TransactionExpiration:
    """The expiration of one broker's transactions and transactional ids."""

    def __init__(self, transactions: TransactionCoordinators, cluster: MetadataCache) -> None:
        self._transactions = transactions
        self._cluster = cluster
        self._serials: StableSince[str, int] = StableSince()
        """Of the transactions under way."""

    def rules(self) -> list[ExpirationRule]:
        """The rules of overdue transactions and of unused ids."""
        cluster = self._cluster
        return [
            ExpirationRule(
                "the abort of overdue transactions",
                lambda: cluster.settings.transaction_abort_timed_out_transaction_cleanup_interval_ms,
                self.abort_overdue,
            ),
            ExpirationRule(
                "the expiration of transactional ids",
                lambda: cluster.settings.transaction_remove_expired_transaction_cleanup_interval_ms,
                self.remove_expired,
            ),
        ]

    async def abort_overdue(self) -> int:
        """Starts to abort every transaction that takes too long; returns how many."""
        found = checked = 0
        unchanged_seconds = self._serials.observe(asyncio.get_running_loop().time())
        for coordinator in self._transactions.coordinators():
            for name in list(coordinator.state.ongoing_ids):
                current, serial = coordinator.state.get(name), coordinator.state.serial(name)
                if current is not None and serial is not None:
                    # A start time may be in the future: then the time since it was first seen counts.
                    is_late = unchanged_seconds(name, serial) * 1000 > current.timeout_ms
                    if is_late or is_overdue(current, coordinator.clock_ms()):
                        coordinator.abort_overdue(name, serial)
                        found += 1
                checked += 1
                if checked % IDS_PER_STEP == 0 or (found and found % ENDED_PER_STEP == 0):
                    await asyncio.sleep(0)
        return found

    async def remove_expired(self) -> int:
        """Starts to remove every id that was not used for long; returns how many."""
        expiration_ms = self._cluster.settings.transactional_id_expiration_ms
        found = checked = 0
        for coordinator in self._transactions.coordinators():
            for name in list(coordinator.state.ids):
                current = coordinator.state.get(name)
                if current is not None and is_expired(current, coordinator.clock_ms(), expiration_ms):
                    coordinator.remove_expired(name, expiration_ms)
                    found += 1
                checked += 1
                if checked % IDS_PER_STEP == 0 or (found and found % ENDED_PER_STEP == 0):
                    await asyncio.sleep(0)
        return found
