"""Power loss: brokers on a file system that loses what was not flushed (`python -m tests.power`)."""
