"""`python -m bench full`: the whole grid, cell by cell, resumable; what is measured is said in files.

| module | |
|---|---|
| `cells` | reads `bench/workloads/*.toml`, after OpenMessaging Benchmark; a workload's cells, with digests |
| `work` | how each kind of cell is measured on a warm session |
| `rows` | the rows on disk, raw nanoseconds beside them; what the rounds of a cell say of its median |
| `lookup` | rows by what they are of |
| `section`, `tables` | docs/benchmarks/grid.md: what is said above, tables, what the work cost |
| `command` | the command line, the order of sessions, what remains |
"""
