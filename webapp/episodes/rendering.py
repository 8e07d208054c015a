"""Transcripts as they were meant: Markdown's structure, highlighted code blocks; all of it text that a model wrote, none of it obeyed.

Raw HTML, links, images and references are not parsed at all and stand as they were written, so nothing points anywhere. What comes
out is cleaned once more against a list of elements before a page sees it.
"""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final

import nh3
from django.utils.safestring import SafeString, mark_safe
from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from markdown_it.utils import OptionsDict

from webapp.core.highlight import highlighted
from webapp.core.hostile import visible
from webapp.episodes.selectors import Text, TurnView

VIEWS: Final = ("raw", "rendered")
#: Characters that are rendered for one page; what comes after them is shown raw.
PAGE_CHARACTERS = 300_000
MAX_NESTING = 20
#: Rules that would make something act, or change what stands there: entities and backslashes stay as written.
_OFF = ("html_block", "html_inline", "link", "image", "autolink", "reference", "entity", "escape")
_TAGS = {
    "p", "br", "hr", "strong", "em", "s", "ul", "ol", "li", "blockquote", "pre", "code", "span",
    "table", "thead", "tbody", "tr", "th", "td",
}  # fmt: skip
_ATTRIBUTES = {
    "span": {"class", "title"},
    "p": {"class"},
    "code": {"class"},
    "pre": {"class", "tabindex"},
    "div": {"class"},
    "ol": {"start"},
}
_LANGUAGE_CHARACTERS = 20


class _Renderer(RendererHTML):
    """Text in the same form as everywhere: escaped, invisible characters as marks."""

    def text(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: MutableMapping[str, Any]) -> str:
        return visible(tokens[idx].content)

    def code_inline(
        self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: MutableMapping[str, Any]
    ) -> str:
        return f"<code>{visible(tokens[idx].content)}</code>"

    def code_block(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: MutableMapping[str, Any]) -> str:
        return _block(tokens[idx].content, "text")

    def fence(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: MutableMapping[str, Any]) -> str:
        return _block(tokens[idx].content, tokens[idx].info.strip().split(" ")[0][:_LANGUAGE_CHARACTERS].lower())

    # The page has its own headings; a model's are set in bold.
    def heading_open(
        self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: MutableMapping[str, Any]
    ) -> str:
        return '<p class="heading">'

    def heading_close(
        self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: MutableMapping[str, Any]
    ) -> str:
        return "</p>\n"


def _block(source: str, language: str) -> str:
    return f'<pre tabindex="0"><code>{highlighted(source, language=language)}</code></pre>\n'


@lru_cache(maxsize=1)
def _parser() -> MarkdownIt:
    parser = MarkdownIt(
        "commonmark", {"html": False, "breaks": True, "maxNesting": MAX_NESTING}, renderer_cls=_Renderer
    )
    return parser.enable(["table", "strikethrough"]).disable(list(_OFF))


@lru_cache(maxsize=512)
def rendered(text: str) -> SafeString:
    """Hostile ``text`` as safe HTML with its Markdown structure."""
    html = nh3.clean(_parser().render(text), tags=_TAGS, attributes=_ATTRIBUTES, link_rel=None)
    return mark_safe(html)  # noqa: S308 - cleaned right here


def render_turns(*turns: Sequence[TurnView]) -> list[list[TurnView]]:
    """Each list of turns with its texts rendered, PAGE_CHARACTERS of them in the order of turns; the others stay raw."""
    left = PAGE_CHARACTERS
    done: list[list[TurnView]] = [[] for _ in turns]
    for index in range(max((len(side) for side in turns), default=0)):
        for side, made in zip(turns, done, strict=True):
            if index >= len(side):
                continue
            turn = side[index]
            cost = len(turn.observation.shown) + len(turn.reply.shown) + len(turn.hint)
            left -= cost
            made.append(turn if left < 0 else _dressed(turn))
    return done


def render_text(text: Text) -> Text:
    """The text with its HTML."""
    return replace(text, html=rendered(text.shown))


def _dressed(turn: TurnView) -> TurnView:
    hint = rendered(turn.hint) if turn.hint else None
    return replace(turn, observation=render_text(turn.observation), reply=render_text(turn.reply), hint_html=hint)
