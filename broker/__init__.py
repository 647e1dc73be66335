"""The Kafka-compatible broker, one room a feature, from the top floor down.

| floor | rooms |
|---|---|
| 15 | `main`: the broker as a process |
| 14, 13 | `server`: the broker as one object; `assembly`: the construction of its objects |
| 12 | `metrics/`: the state of this node over HTTP |
| 11 | `node/`: this node's life: first start, data directory, its log groups |
| 10 | `groups/`: consumer groups |
| 9 | `staging/`: staged appends (Lockstep's own); `transactions/`: transactions and producer ids |
| 8 | `controller/`: topics, configurations, nodes; `produce/`: appends |
| 7 | `coordination/`: what coordinators have in common; `fetch/`: reads |
| 7 | `locks/`: lock headers (Lockstep's own) |
| 7 | `maintenance/`: retention, compaction, corruption, full disks; `peers/`: the other nodes |
| 6 | `metadata/`: topics, partitions and leaders as clients see them; `network/`: clients' connections |
| 5 | `security/`: keys, certificates, logins, principals |
| 4 | `authorization/`, above `requests/`: ACLs, and the check of a handler before it serves |
| 4 | `audit/`, beside it: the log of administrative operations |
| 4 | `quotas/`, beside it: quotas of clients, and what each has used |
| 4 | `requests/`: what a handler is, and the router |
| 3 | `settings/`: settings of broker, topics, groups |
| 2 | `membership/`: the members and the leader of each log group |
| 1 | `process/`: standard output and the C library's heap |

A room imports those on lower floors alone, imports for types included (a contract of pyproject.toml).
A room has its rules and state, and `api/` with its request handlers where it serves any.
"""
