"""The pipelines without Spark: their data, their writing, their command line."""
