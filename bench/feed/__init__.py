"""`python -m bench feed`: what bodies cost those who read a feed and do not look at them.

| module | |
|---|---|
| `command` | the command line |
| `load` | the jobs: a topic filled with transactions, and read |
| `figures` | medians of the rounds, as a table. Pure |
| `section` | what docs/benchmarks/ says |
"""
