"""What runs in a world: client actors, and the state machines of the group that they use.

| workload | clients | the broker's own parts |
|---|---|---|
| `appends` | producers of both kinds, consumers, an administrator | `Appender`, `ProduceFastPath` |
| `groups` | offsets committed, fetched, deleted, expired | `GroupsState`, `GroupStore`, expiry's rules |
| `transactions` | producers of transactions, readers of what is committed | the same, `committed_reads` |
| `compacting` | writers of keys; a cleaner on every node | `LogToClean` of `broker/maintenance/` |
| `locking` | conditional appends | `Appender`, `LockChecks`, `LockTable` |
| `player` | appenders; a player, its targets, streams between them | `player/core`, `TargetPosition` |
| `player_group` | the same in the order of the log group | those, `LsnReader`, `group_entries` |
| `metadata` | makers of topics, takers of producer ids; older nodes | `MetadataImage`, `MetadataVersions` |

`asking.py` is how all of them find the leader, and what they may conclude from an answer. There is no wire
and no handler here: those are the compatibility tests' business. Where a handler does something that matters
to the group, the function that runs on the node does the same and names the handler.
"""

from __future__ import annotations

from tests.sim.faces import Workload
from tests.sim.workloads.appends import Appends
from tests.sim.workloads.compacting import Compacting
from tests.sim.workloads.groups import Groups
from tests.sim.workloads.locking import Locking
from tests.sim.workloads.metadata import Metadata
from tests.sim.workloads.player import GroupPlayerWorkload, PlayerWorkload
from tests.sim.workloads.transactions import TransactionalAppends

WORKLOADS: dict[str, type[Workload]] = {
    each.name: each
    for each in (
        Appends,
        Groups,
        Metadata,
        TransactionalAppends,
        Compacting,
        Locking,
        PlayerWorkload,
        GroupPlayerWorkload,
    )
}
