"""Consumer groups of KIP-848: the coordinator assigns, members reconcile one by one with their heartbeats.

| concern | files |
|---|---|
| Kafka's formats, pure | `consumer_group_records` (records to and from objects) |
| committed, replayed | `consumer_group` (one group), `consumer_groups_state` (all of a log group) |
| the rules, pure | `request_checks`, `heartbeat` (of a member), `membership` (joining, leaving, replacing) |
| assigning, pure | `target_assignment` by an `assignor`: `uniform_assignor`, `range_assignor` |
| reconciling, pure | `current_assignment_builder` (one member's next step) |
| subscriptions, pure | `subscribed_topics`, `subscribed_regex` |
| offsets, pure | `offset_checks` (the epochs of commits and fetches) |
| requests | `consumer_group_coordinator`, `member_timers`, `consumer_group_description` |
| cluster and settings | `cluster_context` |

An operation reads the committed state and returns records and a response; only their replay changes the state
(`broker/coordination/coordinator_runtime.py`).
"""
