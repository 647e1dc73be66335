"""Encryption, logins, certificates of nodes, delegation tokens, the APIs of quotas.

| file | owns |
|---|---|
| `tls_context` | the TLS of a listener: its context, the principals of certificates, new certificates |
| `peer_certificates` | the TLS between nodes: this node's certificate, and whom it trusts |
| `reloadable_key_store` | keys and certificates that are read again when they change |
| `certificate_authority` | a cluster's own CA, for `lockstep certs` |
| `key_store` | private keys and certificates from PEM and PKCS12 |
| `cipher_suites` | cipher suites by Kafka's names and by OpenSSL's |
| `distinguished_name` | the subject of a certificate as Java writes it |
| `principal_rules` | `ssl.principal.mapping.rules`: a subject to a principal's name |
| `sasl_session` | the logins of one connection: states, lifetimes, logins again |
| `sasl_listener` | the mechanisms of a listener and their users |
| `sasl_exchange`, `plain`, `scram`, `oauthbearer` | one login, by each mechanism |
| `token_validator`, `token_keys` | what makes a token acceptable, and the keys of its issuer |
| `scram_credentials` | the stored credentials of SCRAM users, and their usual form |
| `scram_users` | SCRAM users as clients describe and change them |
| `delegation_tokens`, `token_request_policy` | delegation tokens: their rules; who may request them |

The handlers are in `api/`; ACLs are in `broker/authorization/`; a client's principal is
`broker/requests/kafka_principal.py`.
"""
