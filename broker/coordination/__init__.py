"""The common parts of the coordinators of consumer groups and of transactional ids.

| file | owns |
|---|---|
| `key_hash` | a key's partition, as Kafka finds it (pure) |
| `coordinator_shard` | a coordinator that follows the leadership of its log group |
| `coordinator_registry` | the coordinator of a key, and making its topic |
| `coordinator_runtime` | operations that return records and a response, one write of a group at a time |
| `expiration_loop` | the loop that enforces the expiration rules of groups, transactions and stages |
| `stable_since` | the time for which values have been unchanged, for expirations |

`api/` has the handler of FindCoordinator.
"""
