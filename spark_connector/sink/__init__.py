"""The exactly-once sink: `df.writeStream.format("lockstep")`, and the same for a batch.

Tasks write staged batches, which no reader of committed records sees (`stage`); the driver commits an epoch
with one conditional record (`epochs`), so that a replayed epoch is known to be done, and a zombie is fenced.
`settings` reads the options, `columns` says whose partition is which row, `encoding` makes record batches,
`topics` finds where the commits go, `writers` is what Spark calls. The broker's side: docs/staged.md.
"""
