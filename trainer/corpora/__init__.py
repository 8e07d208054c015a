"""Corpora that ship with the trainer: ``demo.jsonl``, short original documents the designer reads (see README.md)."""
