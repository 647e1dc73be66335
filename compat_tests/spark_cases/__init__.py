"""Spark's stock `format("kafka")`, unchanged, against every broker: each option of its source and its sink.

Owns: the cases, one module for each question an option answers: which records (`test_offsets`), in how many
tasks and with which consumers (`test_consumers`), in which batches (`test_streams`), what when they are gone
(`test_data_loss`), whose transaction (`test_transactions`), what is refused (`test_refusals`), where to
(`test_sink`), how soon (`test_real_time`), and what a killed broker does to a stream (`test_restarts`).
`face` is what a case sees of the session, `transcript` holds what Spark answered against what it answered
over Apache Kafka: a case passes where its own expectations hold and both transcripts are equal.

    python -m pytest compat_tests/spark_cases         # what CI runs
    python -m compat_tests.spark_cases                # every case, both versions, three nodes too

Does not measure: durations are never compared. The session is `compat_tests/spark/driver.py`.
"""
