"""`format("lockstep")`: the data source that gives Spark its schema, readers and writers.

Invariants: an instance is pickled into planners and tasks, so it holds its options alone; `source` and `sink`
are imported at their first use, so that a reading job needs nothing of writing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from spark_connector.options import OptionError, source_options

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType

NAME = "lockstep"


class LockstepDataSource(DataSource):
    """Topics of a Lockstep (or Kafka) cluster; options as `spark_connector.options` names them."""

    @classmethod
    def name(cls) -> str:
        """The name for `format()`."""
        return NAME

    def schema(self) -> str:
        """The columns of Spark's own Kafka source; `headers` with includeHeaders."""
        from spark_connector.source.columns import DDL, DDL_WITH_HEADERS

        return DDL_WITH_HEADERS if source_options(self.options).include_headers else DDL

    def reader(self, schema: StructType) -> DataSourceReader:
        """The reader of a batch query. OptionError."""
        from spark_connector.source.batch import BatchReader

        self._check_schema(schema)
        return BatchReader(source_options(self.options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """The reader of a stream. OptionError."""
        from spark_connector.source.stream import StreamReader

        self._check_schema(schema)
        return StreamReader(source_options(self.options))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """The writer of a batch query. OptionError."""
        from spark_connector.sink.writers import BatchWriter

        if overwrite:
            raise OptionError("mode", "a topic is only ever appended to: use mode('append')", kind="method")
        return BatchWriter(self.options, schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """The writer of a stream. OptionError."""
        from spark_connector.sink.writers import StreamWriter

        if overwrite:
            raise OptionError(
                "outputMode", "the sink appends: use outputMode('append') or 'update'", kind="method"
            )
        return StreamWriter(self.options, schema)

    def _check_schema(self, schema: StructType) -> None:
        from spark_connector.source.columns import names

        with_headers = source_options(self.options).include_headers
        if schema.fieldNames() != names(with_headers=with_headers):
            raise OptionError(
                "schema", "the source has its own; select or cast columns instead", kind="method"
            )
