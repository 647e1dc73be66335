"""Handlers: `api_versions`, `metadata`, `describe_cluster`, `describe_topic_partitions`,
`describe_log_dirs`."""
