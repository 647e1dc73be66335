"""The controller: topics, partitions, configurations and members of the cluster, recorded in log group 0.

| file | owns |
|---|---|
| `topics` | creating, growing and deleting topics |
| `topic_reservations` | names in use and reserved partitions |
| `start_checks` | a node alone: metadata and partitions that do not fit together |
| `rejected_creations` | topics whose creation was rejected lately, which are not auto-created |
| `replica_assignment` | replicas that a client names for new partitions |
| `partition_commands` | commands to the leaders of data groups: open and close partitions |
| `initial_scram_users` | the SCRAM users that a setting names |
| `token_expiration` | delegation tokens that are over, removed |
| `metadata_version_control` | which commands the metadata version allows; when a higher one is recorded |
| `orphan_partitions` | partitions without a topic, found and closed |
| `config_changes` | changes of configurations while the broker runs |
| `alter_configs_shared` | what AlterConfigs and IncrementalAlterConfigs have in common |
| `config_access` | whose configurations a client may describe or alter |
| `acl_changes`, `acl_requests` | changes of ACLs; the common part of the APIs about them |
| `forwarder` | requests forwarded to the controller (KIP-590) |
| `reassignment` | partitions that clients move, by whole log groups |
| `cluster_admin` | nodes added and removed, preferred leaders |
| `transfer_requests` | requests to leaders to transfer their leadership |
| `cluster_status`, `log_group_report` | the cluster's status, and a log group's by its leader |
| `damage_reports` | damaged offset ranges on each node, and skipping them |
| `damaged_copies` | which other nodes have an intact copy of a damaged range |
| `raft_voters` | the errors of AddRaftVoter and RemoveRaftVoter |

`api/` has the handlers.
"""
