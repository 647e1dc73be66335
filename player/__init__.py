"""Exactly-once, in-order delivery of a log to targets that store what they are sent. Source: seed 000."""
