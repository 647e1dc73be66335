"""The replicated log: log groups, one Raft state machine and one shared data log each.

A batch is opaque bytes plus the few numbers the directory needs. This package knows nothing of Kafka
requests, topics' names or clients.
"""
