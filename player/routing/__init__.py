"""Routing: the targets of each record of a batch, and the batch for each target.

| module | owns |
|---|---|
| `selector` | the protocol of a function that chooses a record's targets |
| `record_router` | the router by record: a batch of its own for each target (pure) |
| `header` | the selector by a record's header (pure) |
| `key_hash` | the selector by the hash of a record's key (pure) |
| `function` | the selector that is a user's function, and its name |
| `broadcast` | the router of all entries to all targets, without opening them (pure) |
"""
