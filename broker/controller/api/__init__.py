"""Handlers that the controller serves, or that change what it records.

| subject | handlers |
|---|---|
| topics | `create_topics`, `create_partitions`, `delete_topics` |
| replicas | `elect_leaders`, `alter_partition_reassignments`, `list_partition_reassignments` |
| configurations | `describe_configs`, `alter_configs`, `incremental_alter_configs`, `list_config_resources` |
| the quorum | `describe_quorum`; `add_raft_voter`, `remove_raft_voter` (voters follow from the nodes) |
| nodes, which leave in another way | `unregister_broker`, `unregister_controller` |
| features, whose levels are fixed | `update_features` |
| one data directory | `alter_replica_log_dirs` |
| `lockstep cluster` | `lockstep_cluster` |
"""
