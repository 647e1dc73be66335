"""Lockstep for Apache Spark: what a job needs to read from and write to Lockstep's topics.

Importing this package imports no pyspark: executors and tools that only want a connection need none.

Imports `protocol` of the broker's packages and nothing else, so that these two are all an executor is sent.
"""
