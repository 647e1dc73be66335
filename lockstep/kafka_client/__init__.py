"""Kafka clients over `lockstep.protocol`: one connection for asyncio, one that blocks, and what an event loop
builds on the first.

`connection` and `blocking_connection` are the two shells of `lockstep.protocol.client_protocol`. Kafka's
client properties (`property_names`) become their `security`: TLS with the keys of `key_files`, which
`tls_transport` drives for asyncio, and logins by `sasl`. `connection_setup` has a connection's first
requests, `connection_errors` why there is none.
`cluster_connections` finds brokers (`bootstrap`), leaders and coordinators, `client` has the requests of
topics and records, `followed_topic` one topic while its leaders move, `groups` and `group_member` consumer
groups, `acls` ACLs, `quotas` client quotas, `cluster` the administration of nodes and log groups;
`retry_policy` waits between tries.

Invariant: nothing here imports more of Lockstep than `lockstep.protocol`, because Spark's executors are sent
these two packages and the connector alone.
"""
