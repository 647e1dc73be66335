"""Players in Lockstep's own processes: what they read, and who plays.

| module | owns |
|---|---|
| `in_process_source` | the log as the broker that leads it has it in memory |
| `hosted` | the players of one broker: each partition is played where it is led |
"""
