"""A node in a cluster: its first start, the other nodes, and requests between them (decision 19).

The recorded metadata is `broker/cluster_image.py`, the clients' view of it `Cluster` in
`broker/metadata.py`; a node alone has both, too. This package is for several nodes.

| file | owns |
|---|---|
| `node` | this node's life: its first start, registering, opening and giving up groups as they are placed |
| `first_start` | the part of a node with an empty directory (pure) |
| `nodes` | the other nodes: liveness, leaders, endpoints |
| `majority` | warnings while too few nodes are reached |
| `in_sync_replicas` | the replicas of a log group that are in sync, as its leader sees them (pure) |
| `node_status` | the status that nodes send each other (pure) |
| `peer_rpc` | notifications, requests to a group's leader, handshakes |
| `controller` | requests forwarded to the leader of group 0 |
| `group_commands` | the controller's commands to the leaders of data groups |
| `orphans` | partitions without a topic, found and closed |
| `group_report` | the report of one log group, by its leader |
| `reports` | the cluster's report by one node, for `lockstep cluster status` |
| `damage_reports` | the damaged ranges on each node's disk, and skipping them |
| `reassignment` | partitions that clients have moved, by whole log groups |
| `admin` | nodes added and removed, groups led by another, for the rest of `lockstep cluster` |

A node alone has of these `nodes`, `controller` and `group_commands`, without peers, and `reports`. The
members of a log group are decided in `broker/membership/`.
"""
