"""The common parts of the coordinators of consumer groups and of transactional ids.

`key_hash` (pure: a key's partition, as Kafka finds it), `coordinator_shard` (a coordinator follows the
leadership of its log group), `coordinator_registry` (the coordinator of a key, and making the topic).
"""
