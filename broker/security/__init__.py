"""Access control, quotas and login: none of them yet, so these APIs respond as a Kafka without them.

`access_rules` and `delegation_tokens` have the responses that several handlers share; `api/` has the
handlers.
"""
