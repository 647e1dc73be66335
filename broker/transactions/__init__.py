"""Transactions on log groups.

| concern | files |
|---|---|
| pure | `transaction_records` (Kafka's format), `transaction_rules` (state machine), `id_pattern` (filters) |
| committed, replayed | `transaction_state` |
| requests | `transaction_coordinator`, `request_queue` (one request of an id at a time) |
| other log groups | `marker_sender`: a transaction's end sent to the leaders of its partitions |
| before an append (KIP-890) | `verification_queue` (batches that wait), `verification_client` (the request) |
| time | `transaction_expiration`, of transactions and of ids |
| identities | `producer_id_blocks` |
| by transactional id | `transaction_coordinators`: requests of producers and tools |
| handlers | `api/` |

The parts shared with consumer groups are `broker/coordination/`.
"""
