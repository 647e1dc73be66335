"""The asyncio shell of a player: does what the core wants done, over a source and a transport.

| module | owns |
|---|---|
| `playing` | one log: the loop around one `player.core.player.Player` |
"""
