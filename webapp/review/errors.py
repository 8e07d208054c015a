"""What can stand in the way of a judgement."""

from __future__ import annotations


class ReviewRefused(Exception):
    """What was asked cannot be done; the message says why and what to do, for the person who asked."""
