"""Handlers: `produce`, `describe_producers`; `atomic_produce` is a Produce that appends all partitions or
none."""
