"""The cluster's metadata: topics, partitions, nodes and their leaders, recorded and as clients see it.

| file | owns |
|---|---|
| `lowest_sequences` | the lowest rejected sequence of each producer, by topic or its name |
| `metadata_image` | the recorded metadata, replayed from log group 0 |
| `metadata_version` | the metadata version since which each command exists |
| `command_kind` | the kind of a command, for errors |
| `token_commands` | the commands about delegation tokens |
| `quota_commands` | the commands about client quotas |
| `metadata_cache` | the metadata as served: partitions with their leaders |
| `remote_leader` | a log group that this node has no replica of |
| `node_endpoints` | the nodes as one client can reach them |
| `node_view` | what this package reads of the nodes (protocols) |
| `replica_change` | the replicas that a reassignment adds and removes |
| `replica_state` | replicas, leader and in-sync replicas of a partition, as Metadata reports them |
| `current_leader` | the leader in error responses of Produce and Fetch (KIP-951) |
| `leader_epoch_check` | checks of a client's leader epoch |
| `topic_names` | which names a topic may have |
| `topic_validation` | checks of a topic to be created |

`api/` has the handlers: this broker, the cluster, topics.
"""
