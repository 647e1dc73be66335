"""The sources of a player: the interface, and the entries of fetched batches.

| module | owns |
|---|---|
| `interface` | the protocol of a log that a player reads |
| `batch_entries` | committed record batches as entries (pure) |
| `log_id` | the identity of a log, as text (pure) |
"""
