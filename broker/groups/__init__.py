"""Consumer groups on log groups.

| concern | files |
|---|---|
| Kafka's formats, pure | `records` (of `__consumer_offsets`), `subscription` (what a member subscribes to) |
| committed, replayed | `state`, `pending` (offsets within transactions that have not ended) |
| how it gets there | `store`, `expiration` (of offsets that nobody needs any more) |
| members, lost at a failover | `coordinator` (requests in, answers out), `surroundings` (what they share) |
| one group | `classic` (members, generation), `live_group` (timers, rebalances), `deadline` (of a session) |
| joining it | `joining` (what a JoinGroup means), `answers` (who waits for one) |
| while led here | `hosted`: store and coordinator follow the leadership of their log group |
| the front door | `groups`: the coordinator and store of each group |

What they share with transactions is `broker/coordination/`.
"""
