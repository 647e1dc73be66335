"""Players in Lockstep's own processes: what they read, and who plays.

| module | owns |
|---|---|
| `config` | what a player is to do, from its file (pure) |
| `running` | a whole player as a process: `lockstep player run` |
| `players` | the logs that a process plays, and their targets, changed at run time |
| `routers` | the router that a configuration asks for |
| `standing_by` | one log: claimed, played, lost, waited for again |
| `claims`, `claim_table`, `claims_topic` | who plays: claims in a topic with locks; what they say; that topic |
| `admin`, `exposition` | a player's HTTP: status and changes; metrics |
| `in_process_source` | the log as the broker that leads it has it in memory |
| `hosted` | the players of one broker: each partition is played where it is led |
"""
