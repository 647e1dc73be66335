"""`python -m bench full`: the whole grid, cell by cell, resumable; what is measured is said in files.

| module | |
|---|---|
| `workloads` | reads `bench/workloads/*.toml`, after OpenMessaging Benchmark: what, on whom, how long |
| `cells` | a workload's cells: one target at one point of its axes, with a digest of all that defines it |
| `work` | how each kind of cell is measured on a warm session |
| `rows` | the rows on disk: one JSON file a cell, raw nanoseconds beside it |
| `children` | a whole comparison, run as a command of its own |
| `section`, `tables`, `cost` | docs/benchmarks/grid.md: what is said above, tables, what the work cost |
| `lookup`, `spread` | rows by what they are of; what the rounds of a cell say of its median |
| `command` | the command line, the order of sessions, what remains |
"""
