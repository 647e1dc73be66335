"""Arrow of decoded records: the rows of Spark's own Kafka source, in its order of columns.

Owns: the schema, as text for Spark and as Arrow's, and what makes one Arrow batch of `decoding.Columns`.
Invariant: the Arrow schema is what Spark makes of `DDL`; Spark refuses batches of any other.
Does not: import pyspark, so that it runs wherever pyarrow is.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from spark_connector.source.decoding import Columns

DDL: Final = (
    "key BINARY, value BINARY, topic STRING, partition INT, offset LONG, timestamp TIMESTAMP, "
    "timestampType INT"
)
DDL_WITH_HEADERS: Final = f"{DDL}, headers ARRAY<STRUCT<key: STRING, value: BINARY>>"

_HEADERS: Final = pa.list_(
    pa.field("element", pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
)


def arrow_schema(*, with_headers: bool) -> pa.Schema:
    """The columns of each Arrow batch."""
    fields = [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp", pa.timestamp("us", tz="UTC")),
        pa.field("timestampType", pa.int32()),
    ]
    return pa.schema([*fields, pa.field("headers", _HEADERS)] if with_headers else fields)


def names(*, with_headers: bool) -> list[str]:
    """The columns' names, in order."""
    return list(arrow_schema(with_headers=with_headers).names)


def record_batch(columns: Columns, topic: str, partition: int, schema: pa.Schema) -> pa.RecordBatch:
    """One Arrow batch of all rows in `columns`; the numbers' buffers are shared with it, not copied."""
    count = len(columns)
    made = [
        pa.array(columns.keys, pa.binary()),
        pa.array(columns.values, pa.binary()),
        pa.repeat(topic, count),
        pa.repeat(pa.scalar(partition, pa.int32()), count),
        pa.Array.from_buffers(pa.int64(), count, [None, pa.py_buffer(columns.offsets)]),
        pa.Array.from_buffers(pa.timestamp("us", tz="UTC"), count, [None, pa.py_buffer(columns.timestamps)]),
        pa.Array.from_buffers(pa.int32(), count, [None, pa.py_buffer(columns.timestamp_types)]),
    ]
    if len(schema) > len(made):
        made.append(pa.array(columns.headers, _HEADERS))
    return pa.RecordBatch.from_arrays(made, schema=schema)
