"""Consumer groups on log groups: of the classic protocol, and of the one of KIP-848.

| concern | files |
|---|---|
| Kafka's formats, pure | `group_records` (of `__consumer_offsets`), `subscription` (a member's topics) |
| committed, replayed | `group_state`, `transactional_offsets` (of transactions that have not ended) |
| writing | `group_store`, `offset_expiration` |
| members, lost at a failover | `group_coordinator` (requests), `group_context` (shared by all groups) |
| one group | `classic_group` (members, generation), `group_rebalancer` (timers), `session_timer` |
| joining it | `group_join` (the effect of a JoinGroup), `group_responses` (pending responses) |
| while led here | `group_shard`: store and coordinator follow the leadership of their log group |
| by group id | `group_coordinators`: the coordinator and store of each group |
| classic members' requests | `classic_requests` (checks, leaving, descriptions), `group_deletion` |
| groups of the consumer protocol (KIP-848) | `consumer/` |
| requests | `api/` |

The parts shared with transactions are `broker/coordination/`.
"""
