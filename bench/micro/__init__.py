"""`python -m bench micro`: single steps of the produce, replicate and fetch paths, and their history.

| module | |
|---|---|
| `command` | the command line, and the steps |
| `raft` | the steps of the Raft core |
| `follower` | a frame on a follower |
| `requests` | whole requests of many clients, without sockets |
| `history` | a line for each recorded commit, and which commit a step became slower with, the machine apart |
"""
