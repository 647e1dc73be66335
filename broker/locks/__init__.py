"""Optimistic locks on Kafka's wire: record headers make an append conditional (seeds 003, 004; KIP-27).

`headers` (pure) reads a record's lock headers; `lock_versions` (pure) has the offset that last raised each
lock; `table` has the versions of a log group's partitions, replayed and in checkpoints; `checks` decides.
"""
