"""Showing text that a model wrote: what it holds is visible, what it could do is not possible.

Control characters, bidirectional overrides and invisible characters can make code and transcripts look like something they are
not, so each is shown as a small mark with its code point.
"""

from __future__ import annotations

import re

from django.utils.html import escape
from django.utils.safestring import SafeString, mark_safe

# C0 and C1 controls except tab and newline; zero-width and bidirectional formatting; tags, surrogates, noncharacters.
_MARKED = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff"
    "\uffa0\ufff9-\ufffb\ufffe\uffff\U000e0000-\U000e007f\ud800-\udfff]"
)
# A run of combining marks long enough to paint over the lines around it.
_COMBINING = re.compile(
    "([\u0300-\u036f\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f]{4})[\u0300-\u036f\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f]+"
)
_NAMES = {
    "\x00": "NUL",
    "\x07": "BEL",
    "\x08": "BS",
    "\r": "CR",
    "\x1b": "ESC",
    "\x7f": "DEL",
    "\u200b": "ZWSP",
    "\ufeff": "BOM",
}


def _label(character: str) -> str:
    return _NAMES.get(character) or f"U+{ord(character):04X}"


def _mark(match: re.Match[str]) -> str:
    label = _label(match.group())
    return f'<span class="ctl" title="invisible character {label}">{label}</span>'


def visible(text: str) -> SafeString:
    """HTML-escaped ``text`` with every invisible or overriding character replaced by a visible mark.

    CR LF counts as a newline. Newlines and tabs stay as they are; wrap the result in an element with class ``raw``.
    """
    unified = text.replace("\r\n", "\n")
    return mark_safe(_MARKED.sub(_mark, _COMBINING.sub(r"\1…", escape(unified))))  # noqa: S308 - escaped right here


def plain(text: str) -> str:
    """The same marks as bare text (``⟨U+202E⟩``), for attributes, titles, file names and source code given to a lexer."""
    unified = text.replace("\r\n", "\n")
    return _MARKED.sub(lambda match: f"⟨{_label(match.group())}⟩", _COMBINING.sub(r"\1…", unified))
