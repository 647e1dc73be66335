"""Tests that mirror player/."""
