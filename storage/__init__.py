"""The replicated log: log groups, one Raft state machine and one shared data log each.

A batch is opaque bytes plus the few numbers the directory needs. This package knows nothing of Kafka
requests, topics' names or clients. Who uses whom, from above:

| file | owns |
|---|---|
| `group`, `group_options` | what brokers ask: appends of one turn, reads, the group's own entries |
| `open_frame`, `waiters`, `partition` | the open frame; who waits for what; a partition's offsets |
| `transactions` | which transactions of a partition are open, and which were aborted |
| `replica` | the order of everything: hard state, log work, messages, flushes |
| `applying`, `checkpointing`, `derived_state`, `control_partition` | from appended to committed; snapshots |
| `recovering` | all of that at a start |
| `entries`, `shipping`, `installing`, `repairing` | frames to and from other members |
| `flusher`, `idle_marker` | a flush on the loop or in a thread; what says that it is done |
| `raft/`, `log/` | the core; the disk. Neither knows the other |
| `peers/` | messages between nodes, over TCP; used by brokers, knows the core's messages only |
| `types` | the words that all share |
"""
