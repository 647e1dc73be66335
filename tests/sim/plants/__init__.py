"""Mistakes planted in the product on purpose: the checks must see every one of them.

`python -m tests.sim.plants` runs each, seed after seed, until it is caught; `python -m tests.sim --plant
NAME` runs one. All are patches from the test side; the product has no switch for any of them. Where they come
from: issues of other systems (LogCabin, etcd, Redpanda, ...), papers, and our own rules:
docs/storage_rules.md where it names the plant, else the specification (docs/sources.md).
"""

from __future__ import annotations

from tests.sim.faces import Plant
from tests.sim.plants import broker, compaction, group, locks, log, player, raft, transactions

PLANTS: dict[str, Plant] = {
    each.name: each
    for each in (
        *raft.PLANTS,
        *group.PLANTS,
        *broker.PLANTS,
        *transactions.PLANTS,
        *compaction.PLANTS,
        *locks.PLANTS,
        *log.PLANTS,
        *player.PLANTS,
    )
}
