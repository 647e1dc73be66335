"""The source: topics as Spark's batches and streams, with the rows of Spark's own Kafka source.

`positions` resolves the beginnings and ends of ranges, `range_plan` (pure) divides them into tasks and
micro-batches, `batch_decoder` (pure) opens record batches, `columns` makes Arrow of their records,
`range_reader` is the loop of one task, `byte_limit` limits a micro-batch by bytes, `batch` and `stream` are
the readers that Spark calls, `progress` stores a stream's position as a consumer group's.
"""
