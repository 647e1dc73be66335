"""Whose is which record of a batch, and the batch that each target gets.

| module | owns |
|---|---|
| `seam` | what chooses targets: by record |
| `reframing` | the router: a batch of its own for each target (pure) |
| `header` | the choice that a record's headers say (pure) |
| `key_hash` | the choice by the hash of a record's key (pure) |
| `function` | the choice that a function of the user's makes, and how it is named |
| `everything` | the router that gives all to all, and opens nothing (pure) |
"""
