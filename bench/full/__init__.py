"""`python -m bench full`: the whole grid, cell by cell, resumable; the workloads are files.

| module | |
|---|---|
| `cells` | reads `bench/workloads/*.toml`, after OpenMessaging Benchmark; a workload's cells, with digests |
| `work` | how each kind of cell is measured on a warm session |
| `rows` | the rows on disk, raw nanoseconds beside them; the spread of a cell's rounds around its median |
| `lookup` | rows by what they are of |
| `section`, `tables` | docs/benchmarks/grid.md: the introduction, the tables, the cost of the work |
| `command` | the command line, the order of sessions, what remains |
"""
