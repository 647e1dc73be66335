"""Reading topics as Spark's batches and streams; rows as those of Spark's own Kafka source.

`positions` knows where ranges begin and end, `planning` (pure) divides them into tasks and micro-batches,
`decoding` (pure) opens record batches, `columns` makes Arrow of what comes out, `fetching` is the loop of one
task, `sizing` finds how far bytes reach, `batch` and `stream` are what Spark calls, `progress` stores a
stream's position as a consumer group's.
"""
