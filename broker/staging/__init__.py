"""Staged appends: batches of many writers in one log group that one commit makes visible (docs/staged.md).

A writer gets a producer id of its own that names its query (`protocol/staged_messages.py`), and sends
transactional batches with it; no coordinator knows of them. They are open until `stage_commit` commits
them, together with a record that has locks, or aborts them; `staged_append` appends them, `stage_expiration`
aborts abandoned ones. The log is the only state: ids, epochs and markers are enough after a crash.
"""
