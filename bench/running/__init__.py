"""A measurement as a command, from its options to its exit status.

| module | |
|---|---|
| `comparison` | of two sides, session by session |
| `alone` | of Lockstep alone |
"""
