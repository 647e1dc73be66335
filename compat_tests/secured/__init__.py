"""Cases over encrypted listeners, with logins and client certificates: each client, both brokers.

| part | module |
|---|---|
| keys, users, tokens and the brokers | `brokers` |
| the fixtures of the cases | `conftest` |
| records with each login | `test_logins` |
| groups and transactions | `test_members` |
| why a client is not let in | `reasons`, `test_failures` |
| Kafka Streams | `test_word_count` |
| Kafka's tools and access rules | `test_secured_tools` |
"""
