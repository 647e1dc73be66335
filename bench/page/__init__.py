"""`python -m bench.page`: docs/benchmarks.md from kept results; each comparison is told by its own `section`.

| module | |
|---|---|
| `__main__` | the command, the page's title and the order of its sections |
| `one_node` | the section of `python -m bench all` |
| `promises` | every goal in one table |
| `losses` | where Lockstep loses |
| `seeds` | the seeds' figures beside ours |
"""
