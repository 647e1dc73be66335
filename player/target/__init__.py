"""The target's side of a player's stream: what every target must do, in whatever it stores.

| module | owns |
|---|---|
| `marks` | the rule (pure): terms, gaps, duplicates, what to store together, what to acknowledge |
| `records` | the records of what came, and how they are handed to an application |
| `store` | the seam of a store: a mark for each log, stored with what the entries change |
| `guard` | what an application may not do with the transaction that it is given |
| `sqlite` | a store in a SQLite file |
| `postgres` | a store in a PostgreSQL database |
| `file` | a mark in a file, where the effects are elsewhere |
| `webhook` | the same, where each entry is posted to an HTTP server |
| `sessions` | a target over a store: streams, transactions, answers |
| `threads` | all of it for applications without asyncio |

What an application imports is in `lockstep.target`.
"""
