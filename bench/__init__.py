"""`python -m bench`: Lockstep measured, most of it beside Apache Kafka.

A row may import those below it (`make check` holds this).

| packages | |
|---|---|
| `page` | docs/benchmarks.md and docs/benchmarks/, of kept results |
| `full` | the grid: every workload of `workloads/` on every target of `baselines`, and whole comparisons |
| `baselines` | beside whom: Apache Kafka in four ways, two brokers in memory |
| `headline`, `one_node`, `nodes3`, `transactions`, `player`, `spark` | comparisons with Apache Kafka |
| `locks`, `contention`, `feed`, `logstore`, `compaction`, `growth`, `profile`, `micro` | Lockstep alone |
| `running` | a measurement as a command, from its options to its exit status |
| `sessions` | a warm broker, and what is measured on it |
| `figures` | what is made of what was measured: ratios, intervals, tables, pictures |
| `load`, `machine` | the load generator; the device, the memory, the processes |
| `settings`, `kept`, `raw`, `argument_types`, `exit_status`, `progress` | what all of them share |

`command` is always the command line; `work` what runs, `goals` what is promised, `section` and `plots` what
the page says and shows. Jobs of `load` may be named as a module and a function of those above it.
"""
