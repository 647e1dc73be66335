"""Handlers: `fetch`, `list_offsets`, `offset_for_leader_epoch`, `delete_records`."""
