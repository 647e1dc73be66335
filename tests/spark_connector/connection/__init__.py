"""The blocking client over real brokers, and over peers that misbehave."""
