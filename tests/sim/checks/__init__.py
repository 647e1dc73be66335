"""What must never happen, watched from outside: one file per kind of promise.

| file | promises |
|---|---|
| `history.py` | one history: what one node commits at an index, all do; LSNs and offsets dense |
| `elections.py` | one leader a term, one vote a term over all lives, leaders have everything |
| `durability.py` | votes and acknowledgements are on the disk before anybody hears of them |
| `machines.py` | every machine, live or in a checkpoint, is what a replay of the one history gives |
| `leases.py` | while a leader holds its lease nobody else commits |
| `membership.py` | configurations change one at a time, through a joint one, after a current-term commit |
| `convergence.py` | at the end every node has the whole history, byte for byte |
| `clients.py` | acknowledged is committed at that very offset, once, for good; refused is never seen |
| `readers.py` | committed bytes only, no gap, no step back; ends that clients know never go back |
| `transactions.py` | whole or not at all, as their clients wanted, to readers of committed records |

The last three are fed by the workloads that have such clients.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.sim.checks.convergence import Convergence
from tests.sim.checks.durability import Durability
from tests.sim.checks.elections import Elections
from tests.sim.checks.history import History
from tests.sim.checks.leases import Leases
from tests.sim.checks.machines import MachineStates
from tests.sim.checks.membership import Membership
from tests.sim.faces import Check

if TYPE_CHECKING:
    from tests.sim.world import World


def standard_checks(world: World) -> list[Check]:
    """Those of every run; the history first, because the others look things up in it."""
    return [
        History.of(world),
        Elections(world),
        Durability(world),
        Leases(world),
        Membership(world),
        MachineStates(world),
        Convergence(world),
    ]
