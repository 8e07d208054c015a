"""Proof of learning: evaluation sets fixed in advance, the arms of the comparison, their runs, and the report made from stored results."""
