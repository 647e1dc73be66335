"""Exactly-once, in-order delivery of a log to targets that store it. Source: LogPlayer paper."""
