"""Transactions on log groups.

`records` (Kafka's format), `transitions` (who may do what when), `state` (what is committed), `lines` (one
request of an id after the other), `coordinator` (requests become records and markers), `transactions` (the
front door; what it shares with consumer groups is `broker/coordination/`), `expiration`.
"""
