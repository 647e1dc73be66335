"""Consumer groups on log groups.

`records` (Kafka's formats), `state` (what is committed), `store` (how it gets there), `coordinator` (members
and rebalances, lost at a failover), `hosted` (both follow the leadership of their log group), `groups` (the
front door: coordinator and store of each group; what it shares with transactions is `broker/coordination/`).
"""
