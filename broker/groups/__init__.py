"""Consumer groups on log groups.

| concern | files |
|---|---|
| Kafka's formats, pure | `records` (of `__consumer_offsets`), `subscription` (a member's topics) |
| committed, replayed | `state`, `transactional_offsets` (of transactions that have not ended) |
| writing | `store`, `expiration` (of offsets) |
| members, lost at a failover | `coordinator` (requests), `group_context` (shared by all groups) |
| one group | `classic` (members, generation), `live_group` (timers, rebalances), `deadline` (of a session) |
| joining it | `join_rules` (the effect of a JoinGroup), `answers` (pending responses) |
| while led here | `group_shard`: store and coordinator follow the leadership of their log group |
| by group id | `groups`: the coordinator and store of each group |

The parts shared with transactions are `broker/coordination/`.
"""
