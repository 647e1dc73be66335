"""`python -m bench contention`: transactions that want the same few accounts.

| module | |
|---|---|
| `command` | the command line, the clients' start, and the check of the log afterwards |
| `client` | one client, in a process of its own |
| `figures` | goodput, refusals, shares and waits of many clients. Pure |
| `plots`, `section` | the picture, and what docs/benchmarks/ says |
"""
