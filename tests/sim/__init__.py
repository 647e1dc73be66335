"""The simulator: whole clusters of the real storage core in one thread, on virtual time, a seed per history.

`python -m tests.sim --seed N` runs one world; the same seed gives the same trace under any PYTHONHASHSEED.
A world is nodes (the real `LogGroup` over the real `DataLog`, each on a loop and a disk of its own), a
network between them, client actors, and a nemesis that breaks things during the *safety phase*. Then
everything is healed, and in the *liveness phase* all that was acknowledged must be readable on every node.

| file | owns |
|---|---|
| `faces.py` | what workloads, checks and plants are; `Violation` |
| `world.py` | virtual time (integer microseconds), the heap of events, the two phases |
| `loop.py` | an asyncio event loop per node (and one for clients) that runs on the world's time |
| `node.py`, `joining.py` | one node: starts, lives, crashes, restarts; what its group is told at a start |
| `disk.py`, `disk_faults.py` | a node's file system, which survives crashes; what is wrong with it now |
| `network.py` | messages between nodes: frozen at sending, then lost, late, repeated, out of order |
| `nemesis.py` | which fault when |
| `membership.py`, `rot.py` | faults of the group itself; damage to flushed bytes |
| `clocks.py` | the product's `time` module on virtual time |
| `options.py` | what a seed draws; `--set name=value` overrides |
| `trace.py`, `run.py`, `report.py`, `__main__.py` | the hash of all events; one seed; what is printed |
| `plain.py` | the least workload, for the tests of the world itself |
| `soak.py` | the campaign: fresh seeds, evidence, seeds run twice |
| `workloads/` | client actors and the state machines in the groups |
| `player/` | players, targets and streams, for the workload of that name |
| `checks/` | the rules that must hold |
| `plants/` | faults planted in the product, to show that the checks see them |

How the parts meet (exact signatures: `faces.py`):

*A workload* is a class `Workload(world)` listed in `workloads.WORKLOADS[name]`. At every start of a node
the world calls `machines(node)` for fresh commit and tail machines, recovers the group with them, and
calls `opened(node)` on the node's loop. It starts `options.clients` actors `client(number)` on the clients'
loop at time 0; an actor goes on while `world.working` and then returns. After healing, `settle()` has
`options.liveness_s` simulated seconds to see everything acknowledged on every node, or it is a violation.

*Reaching a node*: client code never touches a group directly, it must run as the node:
`answer = await world.ask(node, function, timeout_s)` carries `function(node)` (plain or async) to the
node's loop, after a delay, and the answer back. It raises what the function raised; `Unanswered` where the
node was down, crashed or took too long: then the outcome is unknown. `world.leader()` is the live node that
leads in the highest term (or None), `world.leaders()` all that believe to lead, `world.running()` all nodes
with an open group, `world.members()` those that must hold everything in the end. Inside the
function `node.group` is the `LogGroup`, `node.machines` what `machines(node)` returned,
`node.memory` a dict of the workload's own that dies with the node.

*A check* is a `Check`: its hooks are called on `opened`, `changed` (term, role, commit index, last index of a
node moved; called after the callback that moved them), `sent` (a peer message leaves a node), `crashed`,
`healed`, and `finished`. They may read anything of a node, and must not change, schedule or await anything.
`checks.standard_checks(world)` are in every run,
`workload.checks()` in its runs.

*A violation*: `world.violate(rule, text)`, from anywhere; it raises `Violation` and ends the run, also where
somebody catches it. An exception out of a callback or of a task nobody awaits is one as well, and so is
`on_fatal` without an injected disk fault.

*Random numbers*: `world.random(purpose)` is a `random.Random` of the seed and that purpose, always the same
object for the same purpose. Never the global one, no clocks but `asyncio.get_running_loop().time()` and
`world.now_s`, nothing that depends on the order of a set or on `id()`.

*The trace*: `world.note(kind, text)` adds an event to it, and so to its hash.

*A plant* is a `Plant` in `plants.PLANTS`: a context manager that patches the product for the time of one run,
the workload and the option overrides under which it shows best, and the rules that may report it.
"""
