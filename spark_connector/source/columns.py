"""Arrow of decoded records: the rows of Spark's own Kafka source, in its order of columns.

Owns: the schema, as text for Spark and as Arrow's, and what makes one Arrow batch of
`batch_decoder.RecordColumns`.
Invariant: the Arrow schema is Spark's own of `DDL`; Spark rejects batches of any other.
Does not: import pyspark, so that it runs wherever pyarrow is.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import accumulate
from typing import Final

import pyarrow as pa

from lockstep.protocol.primitives import Buffer
from spark_connector.source.batch_decoder import HeaderList, RecordColumns

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


def record_batch(columns: RecordColumns, topic: str, partition: int, schema: pa.Schema) -> pa.RecordBatch:
    """One Arrow batch of all rows in `columns`.

    It is made of buffers alone: `pyarrow.array` imports pandas, which takes a task longer than a small range.
    """
    count = len(columns)
    name = topic.encode()
    made = [
        _binary(columns.keys),
        _binary(columns.values),
        _array(pa.string(), count, array("i", range(0, (count + 1) * len(name), len(name))), name * count),
        _array(pa.int32(), count, array("i", [partition]) * count),
        _array(pa.int64(), count, columns.offsets),
        _array(pa.timestamp("us", tz="UTC"), count, columns.timestamps),
        _array(pa.int32(), count, columns.timestamp_types),
    ]
    if len(schema) > len(made):
        made.append(_header_lists(columns.headers))
    return pa.RecordBatch.from_arrays(made, schema=schema)


def _array(kind: pa.DataType, count: int, *buffers: Buffer | array[int]) -> pa.Array:
    """An Arrow array without nulls."""
    return pa.Array.from_buffers(kind, count, [None, *map(pa.py_buffer, buffers)])


def _binary(values: Sequence[bytes | None], kind: pa.DataType | None = None) -> pa.Array:
    present = [value or b"" for value in values] if None in values else values
    offsets = array("i", accumulate(map(len, present), initial=0))  # type: ignore[arg-type]
    data = b"".join(present)  # type: ignore[arg-type]
    buffers = [
        _validity(values) if present is not values else None,
        pa.py_buffer(offsets),
        pa.py_buffer(data),
    ]
    return pa.Array.from_buffers(kind or pa.binary(), len(values), buffers)


def _header_lists(headers: Sequence[HeaderList | None]) -> pa.Array:
    every = [header for each in headers if each for header in each]
    names = _binary([name.encode() for name, _ in every], pa.string())
    contents = _binary([content for _, content in every])
    pairs = pa.Array.from_buffers(_HEADERS.value_type, len(every), [None], children=[names, contents])
    offsets = array("i", accumulate((len(each or ()) for each in headers), initial=0))
    buffers = [_validity(headers), pa.py_buffer(offsets)]
    return pa.Array.from_buffers(_HEADERS, len(headers), buffers, children=[pairs])


def _validity(values: Sequence[object]) -> pa.Buffer:
    """Arrow's bitmap: a bit for each value, the first one lowest, 0 for None."""
    bits = "".join("0" if value is None else "1" for value in reversed(values))
    return pa.py_buffer(int(bits or "0", 2).to_bytes((len(values) + 7) // 8, "little"))
