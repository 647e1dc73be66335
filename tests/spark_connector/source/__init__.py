"""The source without Spark: decoding, planning, and reading ranges from a real broker."""
