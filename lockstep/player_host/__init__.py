"""Players in Lockstep's own processes: their sources, and the claims of logs.

| module | owns |
|---|---|
| `config`, `config_file` | a player's configuration (pure); its file |
| `player_process` | a whole player as a process: `lockstep player run` |
| `players` | the logs that a process delivers, and their targets, changed at run time |
| `routers` | the router that a configuration selects |
| `standby` | one log: its claim, its delivery, and standby after a lost claim |
| `claims`, `claim_table`, `claims_topic` | claims of logs; their records (pure); their topic |
| `admin`, `exposition` | a player's HTTP: status and changes; metrics |
| `remote_source` | the log as its brokers serve it to any client |
| `in_process_source` | the log as the broker that leads it has it in memory |
| `group_source`, `group_entries` | a whole log group there, in LSN order; which batches are entries (pure) |
| `local_players` | the players of one broker: each log is delivered by its leader |
| `in_broker` | a whole player beside a broker: `lockstep serve` with `lockstep.player.config` |
"""
