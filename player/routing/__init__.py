"""Whose is which record of a batch, and the batch that each target gets.

| module | owns |
|---|---|
| `seam` | what chooses targets: by record; how the choice is named in a configuration |
"""
