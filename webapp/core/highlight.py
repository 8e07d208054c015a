"""Source code as HTML: Pygments' classes, no inline style, one element a line, linkable lines."""

from __future__ import annotations

from functools import lru_cache

from django.utils.html import escape, format_html
from django.utils.safestring import SafeString, mark_safe
from pygments import highlight
from pygments.formatters.html import HtmlFormatter
from pygments.lexers import get_lexer_by_name
from pygments.lexers.special import TextLexer
from pygments.util import ClassNotFound

from webapp.core.hostile import plain

MAX_HIGHLIGHTED_CHARACTERS = 200_000
MAX_SHOWN_LINES = 5_000


class _Inner(HtmlFormatter[str]):
    """Only the highlighted lines; the block around them is ours."""

    def __init__(self) -> None:
        super().__init__(nowrap=True, classprefix="tok-")


@lru_cache(maxsize=256)
def _lines(source: str, language: str) -> tuple[str, ...]:
    """Highlighted lines of ``source``; kept because 2,500 lines take a fifth of a second."""
    if len(source) > MAX_HIGHLIGHTED_CHARACTERS:
        return tuple(escape(line) for line in source.removesuffix("\n").split("\n"))
    try:
        lexer = get_lexer_by_name(language, stripnl=False, ensurenl=False)
    except ClassNotFound:
        lexer = TextLexer(stripnl=False, ensurenl=False)
    return tuple(highlight(source, lexer, _Inner()).removesuffix("\n").split("\n"))


def highlighted(source: str, *, language: str) -> SafeString:
    """``source``, which is hostile, highlighted as one piece without numbers; a language nobody knows is plain text."""
    return mark_safe("\n".join(_lines(plain(source), language or "text")))  # noqa: S308 - Pygments or escape() made it


def code_lines(source: str, *, language: str, prefix: str) -> SafeString:
    """Lines of ``source`` as HTML, numbered, each with the id ``<prefix><number>`` to link to.

    ``source`` is hostile: invisible characters are shown as marks. Above MAX_HIGHLIGHTED_CHARACTERS it is plain, above
    MAX_SHOWN_LINES cut with a line that says so.
    """
    lines = _lines(plain(source), language)
    shown = lines[:MAX_SHOWN_LINES]
    html = "".join(
        format_html(
            '<span class="line" id="{}{}"><a class="no" href="#{}{}" aria-label="line {}">{}</a><span class="src">{}\n</span></span>',
            prefix, number, prefix, number, number, number, mark_safe(text),  # noqa: S308 - Pygments or escape() made it
        )
        for number, text in enumerate(shown, start=1)
    )  # fmt: skip
    if len(lines) > len(shown):
        html += format_html(
            '<span class="line cut">{} more lines: download the file to see them</span>', len(lines) - len(shown)
        )
    return mark_safe(html)  # noqa: S308 - built by format_html above
