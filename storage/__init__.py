"""The replicated log: log groups, one Raft state machine and one shared data log each.

A batch is bytes plus the few numbers the directory needs. Three open some: `control_partition` its own,
`transactions` the markers, `cleaning` what it compacts. This package knows nothing of Kafka requests, topics'
names or clients. Who uses whom, from above:

| file | owns |
|---|---|
| `group`, `group_options` | what brokers ask: appends of one turn, reads, the group's own entries |
| `open_frame`, `waiters`, `partition` | the open frame; who waits for what; a partition's offsets |
| `lsn_reading` | frames in the order of LSNs, for who plays several partitions as one |
| `gaps` | reads over offsets that compaction took away together with their file |
| `read_ahead` | what a sequential reader will ask for next, read while its client is busy |
| `transactions` | which transactions of a partition are open, and which were aborted |
| `replica` | the order of everything: hard state, log work, messages, flushes |
| `applying`, `checkpointing`, `derived_state`, `control_partition` | from appended to committed; snapshots |
| `recovering` | all of that at a start |
| `threads` | work that waits for the disk, away from the loop |
| `entries`, `shipping`, `pieces`, `installing`, `repairing` | frames to and from other members |
| `read_repair` | a damaged segment repaired while a reader waits for it |
| `confirming` | whether this member still led when it was asked, where the lease cannot say it |
| `plausible` | whether a peer's message has the shape that its class declares |
| `flusher`, `idle_marker` | a flush on the loop or in a thread; what says that it is done |
| `cleaner`, `cleaning`, `clean_ends` | a compaction pass; which records it keeps; how far it has come |
| `freeing` | dead segments freed on a full disk, with checkpoints written above them |
| `sealing` | closing the file that is written to, so that the cleaner reaches what is in it |
| `raft/`, `log/` | the core; the disk. Neither knows the other |
| `peers/` | messages between nodes, over TCP; used by brokers. Knows the core's messages, a shipment's |
| `complaints` | what others do, as log lines that are few; used by brokers and `peers/` |
| `types` | the words that all share |
"""
