"""Transactions on log groups.

`records` (Kafka's format), `transitions` (who may do what when), `state` (what is committed), `lines` (one
request of an id after the other), `coordinator` (requests become records and markers), `hosted` (follows the
leadership of its log group), `transactions` (the front door: which coordinator has which id), `expiration`.
"""
