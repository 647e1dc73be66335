"""The Kafka-compatible broker: connections, one handler per API, topics, fetch, produce.

| concern | files |
|---|---|
| the broker as one object and process | `server`; `assembly` constructs and connects its parts |
| standard output and the log's lines | `process_output` |
| what the C library's heap keeps | `heap` |
| its data directory | `data_directory` |
| a request's way | `connections/`, then `router`, then `handlers/` |
| what handlers are given | `context`; `endpoint`: where clients reach a node |
| sharing the loop between requests | `time_slices` |
| appending a batch | `append`, with `batch_checks`, `keys`, `batch_times`, `recompression` |
| what producers have appended | `producer_state`, `first_sequences`, `duplicate_append_time` |
| identities for producers | `producer_ids` |
| ends of transactions | `transaction_ends` in one log group; over all of them `transactions/` |
| fetching | `fetch_session`, `fetch_purgatory` (long polls), `replica_selection` (a follower in the rack) |
| checks and aborted transactions of reads | `partition_checks`, `committed_reads` |
| the cluster | `cluster_image` (as recorded), `metadata` (as served), `cluster/` (the other nodes) |
| log groups | `local_groups` (those of this node), `remote_group` (stands for others), `membership/` |
| topics | `topic_names`, `topic_rules` (validate), `topics` (creates), `rejected_creations` |
| replicas by hand | `replica_assignment` |
| settings | `settings/`; `config_changes` while the broker runs |
| background tasks | `retention`, `compaction` (with `segment_roll`), `scrub` (finds corruption) |
| what stops retention and compaction | `future_records` |
| log lines and freed space while a disk is full | `full_disks` |
| what is damaged on the disk | `damage`, for `metrics/` and `cluster/` |
| coordinators | `coordination/`, `groups/`, `transactions/` |
| Lockstep's own | `locks/`, `staging/` |
| seen from outside | `metrics/` |
| used by many | `request_errors`, `log_text` (clients' texts in the log), `stable_since` (for how long) |
"""

VERSION = "0.2.0"
"""The distribution's version, as pyproject.toml has it; a test compares the two."""
