"""Tests that mirror player/source/."""
