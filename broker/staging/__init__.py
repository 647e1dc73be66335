"""Staged appends: batches of many writers in one log group that one commit makes visible (docs/staged.md).

A writer gets a producer id of its own that names its query (`protocol/staged_messages.py`), and sends
transactional batches with it; no coordinator knows of them. They are open until `ending` commits them,
together with a record that has locks, aborts them, or finds them left over; `writing` lets them in,
`expiration` ends what nobody came back for. Nothing is kept but the log: ids, epochs and markers say
everything after a crash.
"""
