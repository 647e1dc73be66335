"""`python -m bench growth`: how what Lockstep costs grows with partitions, connections, groups and the log.

| module | |
|---|---|
| `axes` | what grows, in which steps, and which figures are fitted |
| `work` | one step, measured on a fresh node |
| `slopes` | straight lines through logarithms: how a figure grows, in a word. Pure |
| `steps` | the files, one a step, so that a run goes on where it was; what they come to |
| `command` | the command line |
"""
