"""The asyncio shell of a player: does what the core wants done, over a source and a transport.

| module | owns |
|---|---|
| `playing` | one log: the loop around one `player.core.player.Player` |
| `main_stream` | the reading of new entries, and the wait for room |
| `target_stream` | what is told of one stream, with the term that it was opened with; what is read for it |
| `played_target` | a target, whatever becomes of its streams |
| `alarm` | the one timer |
| `ended` | why a playing does not go on |
| `counters` | how much was sent and acknowledged (pure) |
| `status` | what an operator sees (pure) |
"""
