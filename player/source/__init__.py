"""Where a player reads: the seam, and how fetched batches become entries.

| module | owns |
|---|---|
| `seam` | what a player's shell asks of a log |
| `cutting` | committed record batches as entries (pure) |
| `log_id` | what a mark is of, as text (pure) |
"""
