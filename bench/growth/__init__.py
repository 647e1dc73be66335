"""`python -m bench growth`: how what Lockstep costs grows with partitions, connections, groups and the log.

| module | |
|---|---|
| `axes` | what grows, in which steps, and which figures are fitted |
| `work` | one step, measured on a fresh node |
| `steps` | the files, one a step, so that a run can be resumed; slopes, and their names |
| `command` | the command line |
"""
