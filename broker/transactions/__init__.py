"""Transactions on log groups.

| concern | files |
|---|---|
| pure | `records` (Kafka's format), `transitions` (who may do what when), `id_pattern` (tools' filters) |
| committed, replayed | `state` |
| requests | `coordinator` (they become records and markers), `lines` (one of an id after the other) |
| other log groups | `markers`: a transaction's end carried to whoever leads its partitions |
| before a partition takes a batch | `gate` (what would begin one waits), `verification` (the question) |
| time | `expiration`, of transactions and of ids |
| the front door | `transactions`: what producers and tools ask, by transactional id |

What they share with consumer groups is `broker/coordination/`.
"""
