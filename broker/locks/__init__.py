"""Optimistic locks on Kafka's wire: record headers make an append conditional (seeds 003, 004; KIP-27).

`headers` (pure) reads what a record asks for; `marks` (pure) knows by which offset each lock was last raised;
`table` has the marks of a log group's partitions, replayed and carried by checkpoints; `checks` decides.
"""
