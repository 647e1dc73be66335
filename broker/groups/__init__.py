"""Consumer groups on log groups.

`records` (Kafka's formats), `state` (what is committed), `store` (how it gets there), `coordinator` (members
and rebalances, lost at a failover), `hosted` (both follow the leadership of their log group), `groups` (the
front door: which coordinator has which group).
"""
