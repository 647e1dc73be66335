"""Tests that mirror player/driver/."""
