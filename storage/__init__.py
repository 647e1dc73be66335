"""The replicated log: log groups, one Raft state machine and one shared data log each.

A batch is bytes plus the few numbers that the directory needs. Three modules open some batches:
`control_partition` its own, `aborted_transactions` the markers, `compaction_rules` what it compacts. This
package knows nothing of Kafka requests, topics' names or clients. A module uses those below it:

| file | owns |
|---|---|
| `log_group`, `group_options` | the API for brokers: appends, reads, the group's own entries |
| `plain_appends` | the append of batches that need no decision but whether there is room |
| `open_frame`, `partition` | the open frame; a partition's offsets |
| `waiters`, `waiter_calls` | callbacks on a commit, and their calls |
| `served_leadership` | whether this member serves as the leader, and who is notified |
| `control_commands` | the group's own commands: partitions opened, closed, their log starts |
| `lsn_reader` | frames in the order of LSNs, for a player of several partitions as one |
| `gap_reads` | reads over offsets that compaction removed together with their segment |
| `read_ahead` | the next read of a sequential reader, done while its client is busy |
| `aborted_transactions` | the open and the aborted transactions of a partition |
| `replica`, `replica_listener`, `log_work` | drives the Raft core: hard state, log work, messages, flushes |
| `applier`, `checkpointer`, `state_machines`, `control_partition` | from appended to committed; snapshots |
| `group_recovery` | the recovery of a group at its start |
| `threads` | work that waits for the disk, away from the loop |
| `append_codec`, `segment_repair` | frames to and from other members |
| `snapshot_transfer`, `snapshot_chunk`, `snapshot_install` | snapshots to and from other members |
| `read_repair` | a damaged segment repaired while a reader waits for it |
| `read_index` | confirms a leadership without a lease (ReadIndex) |
| `message_validation` | checks that a peer's message has the shape that its class declares |
| `flusher`, `idle_marker` | a flush on the loop or in a thread; the marker that it is done |
| `deadline_timer` | a timer for a deadline that often moves |
| `compaction_pass`, `compaction_rules`, `compaction_progress` | a pass; the records it keeps; its progress |
| `log_cleaner` | runs compaction passes, and the joining of small files |
| `missing_records` | records missing at the beginning of a log without its state file |
| `disk_full_release` | segments without live records deleted on a full disk, after checkpoints above them |
| `segment_sealer` | seals the active segment, so that the cleaner reaches its records |
| `raft/`, `log/` | the core; the disk. Neither knows the other |
| `peers/` | messages between nodes, over TCP; used by brokers. Knows the messages of core and snapshots |
| `rate_limited_log` | warnings about clients and peers, at a limited rate |
| `types` | the types that all share |
"""
