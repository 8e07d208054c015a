"""Every key of every page in one place. Templates name an entry (``{% key "pause" %}``); static/js/shell.js presses what is visible.

On one page no key may stand for two things: tests/browser/test_keys.py opens every page and compares. What is heavy asks first, or
lives only where its button is to be seen and in the ``?`` sheet. Typing in a field never triggers anything.
"""

from __future__ import annotations

from dataclasses import dataclass

#: First key of the chords that go somewhere: ``g r`` opens the list of runs.
GO = "g"
#: Keys the shell itself uses.
SHELL = ("?", "Escape", "Alt+M", "Ctrl+K")


@dataclass(frozen=True, kw_only=True)
class Key:
    """``key`` as ``KeyboardEvent.key`` says it; ``is_heavy``: it changes more than can be taken back with the next press."""

    key: str
    label: str
    is_heavy: bool = False


KEYS: dict[str, Key] = {
    # Every list and page
    "search": Key(key="/", label="search"),
    "next_page": Key(key="]", label="next page"),
    "new": Key(key="n", label="new"),
    "import": Key(key="i", label="import a run"),
    "go_queue": Key(key="g q", label="go to queue and workers"),
    # A run: the same on all its pages
    "start": Key(key="s", label="start", is_heavy=True),
    "pause": Key(key="p", label="pause"),
    "unpause": Key(key="p", label="resume"),
    "resume": Key(key="p", label="resume from checkpoint", is_heavy=True),
    "checkpoint": Key(key="c", label="checkpoint"),
    "stop": Key(key="S", label="stop", is_heavy=True),
    "compare": Key(key="=", label="compare"),
    "clone": Key(key="y", label="clone"),
    "dry_run": Key(key="d", label="dry run"),
    "add_run": Key(key="a", label="add a run"),
    # An environment and its plays
    "play": Key(key="o", label="play it yourself"),
    "edit_variant": Key(key="e", label="edit a variant"),
    "gates": Key(key="t", label="run the gates again", is_heavy=True),
    "lineage": Key(key="l", label="lineage"),
    "quarantine": Key(key="x", label="quarantine", is_heavy=True),
    "flag": Key(key="f", label="flag"),
    "zoom_in": Key(key="+", label="zoom in"),
    "zoom_out": Key(key="-", label="zoom out"),
    "zoom_fit": Key(key="0", label="show all of it"),
    # Transcripts and pairs
    "pair": Key(key="v", label="side by side"),
    "raw": Key(key="r", label="raw or rendered"),
    "previous": Key(key="k", label="previous pair"),
    "following": Key(key="j", label="next pair"),
    "difference": Key(key="d", label="first difference"),
    "swap": Key(key="w", label="swap sides"),
    # Review
    "queues": Key(key="q", label="queues"),
    "flags": Key(key="l", label="list of flags"),
    "fill": Key(key="r", label="look for new items", is_heavy=True),
    "next_item": Key(key="Enter", label="next item"),
    "fine": Key(key="0", label="fine"),
    "more_kinds": Key(key="m", label="more kinds"),
    "comment": Key(key="c", label="comment"),
    "undo": Key(key="u", label="take my last label back"),
    "skip": Key(key="s", label="skip"),
    "environment": Key(key="e", label="the environment's own page"),
    "tick_all": Key(key="a", label="tick all"),
    "label_ticked": Key(key="b", label="label all ticked", is_heavy=True),
    "copy": Key(key="c", label="copy"),
}
#: Rows of choices (``{% key_for %}``) have the digits; where a second row stands beside the first, these letters.
SECOND_ROW = "iop"
