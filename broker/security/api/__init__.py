"""Handlers of features that are absent: each answers as an Apache Kafka whose feature is not enabled.

| subject | handlers |
|---|---|
| access rules | `create_acls`, `delete_acls`, `describe_acls` |
| quotas | `alter_client_quotas`, `describe_client_quotas` |
| login | `sasl_handshake`, `sasl_authenticate` |
| credentials | `describe_user_scram_credentials`, `alter_user_scram_credentials` |
| delegation tokens | `create_delegation_token`, `describe_delegation_token` |
| their lifetimes | `expire_delegation_token`, `renew_delegation_token` |
"""
