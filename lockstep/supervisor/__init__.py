"""`lockstep serve --processes N`: one command that runs the N nodes of a small cluster on this machine.

`node_plan` (pure) derives each node's settings from those of the command, `restart_policy` (pure) decides
what follows when a node's process ends, `processes_directory` owns the data directory around the nodes',
`supervisor` runs the processes. Each node is an ordinary `lockstep serve` of a cluster; nothing here is on
the way of a request. Reasons: docs/decisions/0061-processes-on-one-machine.md.
"""
