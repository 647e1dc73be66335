"""Spark over Lockstep and over Apache Kafka: reading both, writing ours; `python -m bench spark`.

`command` owns the words, the alternation and the ratios, `filling` the topics to be read, `driver` the one
Spark session that does all of it, in Spark's own environment.
"""
