"""The asyncio shell of a player: executes the core's actions over a source and a transport.

| module | owns |
|---|---|
| `driver` | one log: the loop around one `lockstep.player.core.player.Player` |
| `interface` | what its streams see of it |
| `main_stream` | the reading of new entries, and the wait for room |
| `target_stream` | the events of one stream, with the term that it was opened with; the reads for it |
| `target_record` | a target's state over all its streams |
| `alarm` | the one timer |
| `errors` | the reasons why a driver stops |
| `counters` | counts of sent and acknowledged entries (pure) |
| `status` | the status that an operator sees (pure) |
"""
