"""Players in Lockstep's own processes: what they read, and who plays.

| module | owns |
|---|---|
| `config`, `config_file` | what a player is to do (pure); its file |
| `running` | a whole player as a process: `lockstep player run` |
| `players` | the logs that a process plays, and their targets, changed at run time |
| `routers` | the router that a configuration asks for |
| `standing_by` | one log: claimed, played, lost, waited for again |
| `claims`, `claim_table`, `claims_topic` | who plays: claims; what they say (pure); their topic |
| `admin`, `exposition` | a player's HTTP: status and changes; metrics |
| `remote_source` | the log as its brokers serve it to any client |
| `in_process_source` | the log as the broker that leads it has it in memory |
| `group_source`, `group_cutting` | a whole log group there, in LSN order; which batches are entries (pure) |
| `hosted` | the players of one broker: each log is played where it is led |
| `in_broker` | a whole player beside a broker: `lockstep serve` with `lockstep.player.config` |
"""
