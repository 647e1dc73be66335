"""Consumer groups on log groups.

`records` (Kafka's formats), `state` (what is committed), `store` (how it gets there), `coordinator` (members
and rebalances, lost at a failover), `groups` (the front door: which coordinator has which group).
"""
