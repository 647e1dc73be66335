"""`python -m bench nodes3`: three Lockstep nodes against three Apache Kafka nodes.

| module | |
|---|---|
| `command` | the command line and the plan of sessions |
| `work` | the blocks of work |
| `goals` | which figures are divided by which, and the project's goals |
| `section` | what docs/benchmarks/ says |
"""
