"""What the coordinators of consumer groups and of transactional ids have in common.

`key_hash` (pure: a key's partition, as Kafka finds it), `hosted` (a coordinator follows the leadership of its
log group), `coordination` (the front door: which coordinator has which key, and making the topic).
"""
