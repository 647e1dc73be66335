"""The other nodes of the cluster: requests between nodes, their liveness, and which replicas are in sync.

| file | owns |
|---|---|
| `node_registry` | the other nodes: liveness, leaders, endpoints |
| `node_status` | the status that nodes send each other (pure) |
| `metadata_versions` | which metadata versions the nodes support, and which nodes are too old (pure) |
| `peer_rpc` | notifications, requests to a group's leader, handshakes |
| `in_sync_replicas` | the replicas of a log group that are in sync, as its leader sees them (pure) |
| `controller_quorum` | the nodes that elect the controller, and which are reached |
| `quorum_watch` | warnings while too few nodes are reached |
"""
