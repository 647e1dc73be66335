"""Client quotas: what is stored of them, which one a client has, and what it has used on this node (KIP-13).

| subject | module |
|---|---|
| entities, keys and values, and what is rejected | `quota_entity` |
| the stored quotas, and the one that applies | `quota_table` |
| rates over a window, and how long to wait | `quota_rate` |
| tokens for changes of partitions | `token_bucket` |
| changes of quotas, checked and recorded | `quota_changes` |
| the quotas of this node's clients | `quota_manager` |
| changes of partitions in one request | `controller_mutation_quota` |

Each node counts what its own clients do there, as in Kafka.
"""
