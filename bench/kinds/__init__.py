"""Kinds of measurements that are one file each: their declarations for `bench.runner`.

| module | |
|---|---|
| `headline` | what the project is judged by: one node and three against Apache Kafka, with intervals |
| `one_node` | one node against one, row by row; a broker against itself or another source tree |
| `nodes3` | three nodes against three, and the loss of a leader |
| `secured` | SASL_SSL against PLAINTEXT: throughput, latency, reading, CPU |
| `transactions` | transactions, and atomic appends, on three nodes |
| `contention` | transactions that want the same few accounts |
| `feed` | what bodies cost those who read a feed and do not look at them |
"""
