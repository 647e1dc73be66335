"""One module per family of commands: `add_to(families)` declares it, its `run` executes it.

| module | commands |
|---|---|
| `serve` | the broker |
| `cluster`, `topics`, `configs`, `groups`, `users`, `acls` | administration |
| `produce`, `consume` | records from and to standard input and output |
| `player` | a player, and its administration |
| `log` | verification and dump of a stopped broker's files; skipping of damaged records |
| `options` | the options of several families, and the wait for brokers |
| `standard_input` | lines of standard input, without blocking the loop |

At import they may import nothing but argparse and the like; see `lockstep.cli`.
"""
