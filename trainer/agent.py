"""The agent's action: what of a reply goes to `step` (spec 3, last paragraph)."""

from __future__ import annotations

import re

_BOX = "\\boxed{"
_BRACES = re.compile("[{}]")
_REDUNDANT_BRACES = 2
_THINK_END = "</think>"


def boxed_content(text: str) -> str | None:
    """Text inside the first `\\boxed{…}` with balanced braces, without up to two redundant brace pairs; None without a box.

    One pass over the braces, whatever a model writes.
    """
    start = text.find(_BOX)
    if start < 0:
        return None
    opened: list[int] = []
    first: tuple[int, int] | None = None
    for brace in _BRACES.finditer(text, start):
        at = brace.start()
        if text[at] == "{":
            opened.append(at)
        elif opened:
            opening = opened.pop()
            if text.endswith(_BOX, start, opening + 1) and (first is None or opening < first[0]):
                first = (opening, at)
    return None if first is None else _strip_braces(text[first[0] + 1 : first[1]])


def action_of(reply: str) -> str:
    """The string given to `step`: the boxed content boxed again, else the stripped reply. Thinking is not looked at."""
    visible = reply.rsplit(_THINK_END, 1)[-1]
    content = boxed_content(visible)
    return f"{_BOX}{content}}}" if content is not None else visible.strip()


def _balanced(text: str, start: int) -> str | None:
    depth = 1
    for i in range(start, len(text)):
        if text[i] == "{":
            depth += 1
        elif text[i] == "}":
            depth -= 1
            if depth == 0:
                return text[start:i]
    return None


def _strip_braces(content: str) -> str:
    content = content.strip()
    for _ in range(_REDUNDANT_BRACES):
        if not (content.startswith("{") and _balanced(content, 1) == content[1:-1]):
            break
        content = content[1:-1].strip()
    return content
