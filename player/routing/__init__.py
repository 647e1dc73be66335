"""Routing: the targets of each record of a batch, and the batch for each target.

| module | owns |
|---|---|
| `selector` | the protocol of a function that chooses a record's targets |
| `reframing` | the router: a batch of its own for each target (pure) |
| `header` | the choice that a record's headers say (pure) |
| `key_hash` | the choice by the hash of a record's key (pure) |
| `function` | the choice that a function of the user's makes, and how it is named |
| `everything` | the router that gives all to all, and opens nothing (pure) |
"""
