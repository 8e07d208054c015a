"""Environments put together and exported as a pool."""
