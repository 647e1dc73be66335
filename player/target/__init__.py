"""The target's side of a player's stream: the duties of every target, and stores of several kinds.

| module | owns |
|---|---|
| `target_position` | the rule (pure): terms, gaps, duplicates, transactions, acknowledgements |
| `records` | the records of received parts, as an application gets them |
| `store` | the interface of a store: a mark for each log, stored with the changes of the entries |
| `guard` | the statements that an application may not use in its transaction |
| `sqlite` | a store in a SQLite file |
| `postgres` | a store in a PostgreSQL database |
| `file` | a mark in a file, where the effects are elsewhere |
| `webhook` | the same, where each entry is posted to an HTTP server |
| `sessions` | a target over a store: streams, transactions, responses |
| `threads` | all of it for applications without asyncio |

What an application imports is in `lockstep.target`.
"""
