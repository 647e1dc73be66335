"""`python -m bench ROW`: one Lockstep node against one Apache Kafka node, by rows; `all` of them, or `quick`.

| module | |
|---|---|
| `work` | the rows, and which blocks they are |
| `groups` | the blocks of the row "groups" |
| `goals` | what is divided by what, and the project's goals |
| `command` | the command line, the order of sessions, what is kept |
| `section` | what docs/benchmarks/ says of it |
"""
