"""One thin file per API, a handler that declares its versions; the table of them is in `broker/router.py`.

| subject | handlers |
|---|---|
| records | `produce`, `fetch`, `list_offsets`, `offset_for_leader_epoch`, `delete_records` |
| this broker | `api_versions`, `describe_log_dirs`, `alter_replica_log_dirs` (there is one directory) |
| the cluster | `metadata`, `describe_cluster`, `describe_quorum` |
| nodes, which leave in another way | `unregister_broker`, `unregister_controller` |
| voters, which follow from the nodes | `add_raft_voter`, `remove_raft_voter` |
| features, whose levels are fixed | `update_features` |
| topics | `create_topics`, `create_partitions`, `delete_topics`, `describe_topic_partitions` |
| where partitions are | `elect_leaders`, `alter_partition_reassignments`, `list_partition_reassignments` |
| configurations | `describe_configs`, `alter_configs`, `incremental_alter_configs`, `list_config_resources` |
| members of groups | `join_group`, `sync_group`, `heartbeat`, `leave_group` |
| groups | `describe_groups`, `list_groups`, `delete_groups` |
| their offsets | `offset_commit`, `offset_fetch`, `offset_delete`, `txn_offset_commit` |
| coordinators, of groups and transactions | `find_coordinator` |
| a producer's transaction | `init_producer_id`, `add_partitions_to_txn`, `add_offsets_to_txn`, `end_txn` |
| transactions | `list_transactions`, `describe_transactions`, `write_txn_markers` |
| producers | `describe_producers` |
| access rules, of which there are none | `create_acls`, `delete_acls`, `describe_acls` |
| quotas, of which there are none | `alter_client_quotas`, `describe_client_quotas` |
| login, of which there is none | `sasl_handshake`, `sasl_authenticate` |
| credentials, of which there are none | `describe_user_scram_credentials`, `alter_user_scram_credentials` |
| delegation tokens, of which there are none | `create_delegation_token`, `describe_delegation_token` |
| their lifetimes | `expire_delegation_token`, `renew_delegation_token` |
| Lockstep's own APIs | `lockstep_cluster`, `lockstep_staged` |

Shared or separated parts of handlers are no handlers:

| file | owns |
|---|---|
| `atomic_produce` | a Produce over several partitions that is appended or rejected as a whole |
| `sliced_produce` | the rest of a Produce whose batches take more than one time slice of the loop |
| `rejected_batches` | the partition and the producer of a batch that Produce rejected |
| `sliced_response` | responses that take more than one time slice to make |
| `follower_reads` | what a follower may serve of its copy |
| `replica_state` | replicas, leader and in-sync replicas of a partition, as Metadata reports them |
| `alter_configs_shared` | what AlterConfigs and IncrementalAlterConfigs have in common |
| `delegation_tokens` | what the four APIs about delegation tokens answer |
| `raft_voters` | what AddRaftVoter and RemoveRaftVoter answer |
| `access_rules` | what the three APIs about access rules answer |
| `authorized_operations` | the "authorized operations" bit fields |
| `duplicate_names` | limits of what a request may name more than once |
"""
