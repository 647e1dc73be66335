"""Optimistic locks on Kafka's wire: record headers make an append conditional (seeds 003, 004; KIP-27).

`lock_headers` (pure) reads a record's lock headers; `lock_versions` (pure) has the offset that last raised
each lock; `lock_table` has the versions of a log group's partitions, replayed and in checkpoints;
`lock_check` decides.
"""
