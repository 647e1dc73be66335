"""The connector without Spark: runs where pyspark is not installed. With it: compat_tests/test_spark_*.py."""
