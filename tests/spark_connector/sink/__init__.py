"""The sink without Spark: record batches, and epochs over a real broker."""
