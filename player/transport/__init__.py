"""Streams between a player and its targets: how messages travel, and nothing of what they mean.

| module | owns |
|---|---|
| `seam` | what a player's shell asks of any transport, and what a target's shell does |
"""
