"""Mirrors storage/log."""
