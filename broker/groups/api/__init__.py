"""Handlers of consumer groups.

| subject | handlers |
|---|---|
| members | `join_group`, `sync_group`, `heartbeat`, `leave_group` |
| groups | `describe_groups`, `list_groups`, `delete_groups` |
| offsets | `offset_commit`, `offset_fetch`, `offset_delete`, `txn_offset_commit` |
"""
