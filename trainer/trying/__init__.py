"""Trying one checkpoint by hand: it answers messages and plays environments; JSON lines in, JSON lines out."""
