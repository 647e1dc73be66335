"""The exactly-once sink: `df.writeStream.format("lockstep")`, and the same for a batch.

Tasks write staged batches, which no reader of committed records sees (`stage`); the driver commits an epoch
with one conditional record (`epochs`), so that a replayed epoch counts as done, and a zombie is fenced.
`settings` reads the options, `columns` chooses the partition of each row, `batch_encoder` makes record
batches, `topics` finds the topic of the commits, `stage` sends batches, `writers` has the classes that Spark
calls. The broker's side: docs/staged.md.
"""
