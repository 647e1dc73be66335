"""`python -m bench.page`: docs/benchmarks.md from kept results; each comparison is told by its own `section`.

| module | |
|---|---|
| `__main__` | the command |
| `document` | the page: its title, the kinds of results and their order |
| `promises` | every goal in one table |
| `losses` | where Lockstep loses |
| `seeds` | the seeds' figures beside ours |
"""
