"""Tests that mirror player/target/."""
