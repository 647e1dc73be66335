"""The Kafka-compatible broker: connections, one handler per API, topics, fetch, produce."""

VERSION = "0.1.0"
"""The distribution's version, as pyproject.toml has it; a test compares the two."""
