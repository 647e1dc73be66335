"""`python -m bench.page`: docs/benchmarks.md and docs/benchmarks/ from kept results.

| module | |
|---|---|
| `__main__` | the command |
| `document` | which pages there are, which kinds of results are on which; links |
| `first` | the first page |
| `short`, `advice` | its figures in short, each of one source; when to use Kafka instead |
| `promises` | every goal in one table |
| `losses`, `grid_losses` | where Lockstep loses: in the comparisons, in the grid |
| `seeds` | the seeds' figures beside ours |
| `sections` | what the texts of `bench/texts` need, of each kind |
| `growth_plots`, `headline_plots` | the pictures |
| `prepared` | kept results with titles of today |
"""
