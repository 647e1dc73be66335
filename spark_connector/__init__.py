"""Lockstep for Apache Spark: a session with everything in it, and the data source `lockstep`.

    import spark_connector
    spark = spark_connector.session("orders", kafka=False)
    orders = spark.read.format("lockstep").option("kafka.bootstrap.servers", "localhost:9092")
    orders.option("subscribe", "orders").load().show()

`session` makes a Spark session that has this data source and Spark's own Kafka connector; `register` adds the
data source to a session that is there already. Importing this package imports no pyspark: executors and
tools that only want a connection need none.

Imports `protocol` of the broker's packages and nothing else, so that executors need these two alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from spark_connector.sessions import register, session

__all__ = ["register", "session"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from spark_connector import sessions

        return getattr(sessions, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
