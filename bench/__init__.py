"""`python -m bench`: Lockstep measured, most of it beside Apache Kafka.

A row may import those below it (`make check` holds this).

| packages | |
|---|---|
| `page` | docs/benchmarks.md and docs/benchmarks/, of kept results |
| `full` | the grid: every workload of `workloads/` on every target of `baselines`, and whole comparisons |
| `baselines` | beside whom: Apache Kafka in four ways, two brokers in memory |
| `kinds`, `player`, `spark`, `logstore`, `growth`, `profile`, `micro` | the kinds of measurements |
| `runner` | the one runner: a measurement from its options to its exit status |
| `sessions` | a warm broker, and what is measured on it |
| `figures` | what is made of what was measured: ratios, intervals, tables, pictures |
| `load`, `machine` | the load generator; the device, the memory, the processes |
| `settings`, `kept`, `raw`, `argument_types`, `exit_status` | what all of them share |

A kind is one file of `kinds`, or a package whose `command` is the declaration. Jobs of `load` may be named as
a module and a function of those above it.
"""
