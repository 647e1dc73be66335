"""Transactions on log groups.

| concern | files |
|---|---|
| pure | `records` (Kafka's format), `transitions` (state machine), `id_pattern` (tools' filters) |
| committed, replayed | `state` |
| requests | `coordinator` (records and markers), `request_queue` (one request of an id at a time) |
| other log groups | `markers`: a transaction's end sent to the leaders of its partitions |
| before an append (KIP-890) | `verification_queue` (batches that wait), `verification` (the request) |
| time | `expiration`, of transactions and of ids |
| by transactional id | `transactions`: requests of producers and tools |

The parts shared with consumer groups are `broker/coordination/`.
"""
