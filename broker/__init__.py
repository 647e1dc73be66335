"""The Kafka-compatible broker, one room a feature; ARCHITECTURE.md has the floors.

| room | what it has |
|---|---|
| `server`, `assembly` | the broker as one object; the construction of its parts |
| `process/` | standard output and the C library's heap |
| `node/` | this node's life: first start, data directory, its log groups |
| `metrics/` | the state of this node over HTTP |
| `groups/` | consumer groups |
| `transactions/` | transactions and producer ids |
| `staging/` | staged appends (Lockstep's own) |
| `controller/` | topics, configurations, nodes |
| `produce/` | appends |
| `fetch/` | reads |
| `locks/` | lock headers (Lockstep's own) |
| `coordination/` | what coordinators have in common |
| `maintenance/` | retention, compaction, corruption, full disks |
| `peers/` | the other nodes |
| `membership/` | the members and the leader of each log group |
| `metadata/` | topics, partitions and leaders as clients see them |
| `network/` | clients' connections |
| `security/` | access rules, quotas, login: absent features |
| `requests/` | what a handler is, and the router |
| `settings/` | settings of broker, topics, groups |

A room has its rules and state, and `api/` with its request handlers where it serves any.
"""
