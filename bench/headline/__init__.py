"""`python -m bench headline`: the figures the project is judged by, one node and three, against Apache Kafka.

| module | |
|---|---|
| `sizes` | how much work each block does, for a whole run and a quick one |
| `work` | the blocks of a session, one node's and three nodes' |
| `goals` | what is divided by what, and the project's goals |
| `command` | the command line, the order of sessions, what is kept |
| `plots`, `section` | the picture, and what docs/benchmarks.md says of it |
"""
