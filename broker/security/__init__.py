"""Access control, quotas and login: none of them yet, so these APIs answer as a Kafka without them.

`access_rules` and `delegation_tokens` have what several handlers answer; `api/` has the handlers.
"""
