"""Handlers of transactions.

| subject | handlers |
|---|---|
| a producer's transaction | `init_producer_id`, `add_partitions_to_txn`, `add_offsets_to_txn`, `end_txn` |
| tools | `list_transactions`, `describe_transactions` |
| markers between nodes | `write_txn_markers` |
"""
