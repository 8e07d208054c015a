"""Transcripts rendered: Markdown's structure and nothing that acts."""

from __future__ import annotations

import re
import time
from typing import Any

import pytest
from django.test import Client

from tests.pages.synthetic import ATTACKS
from tests.pages.test_environments_and_episodes import transcript_of
from tests.pages.test_hostile_output import inventory
from webapp.episodes.rendering import PAGE_CHARACTERS, rendered
from webapp.episodes.selectors import PREVIEW_CHARACTERS

TAG = re.compile(r"<\s*/?\s*([a-zA-Z0-9]+)")


def test_structure_is_kept_and_code_is_highlighted() -> None:
    html = rendered(
        "# Plan\n\n1. *probe*\n2. **win**\n\n```python\nfor x in range(3): pass\n```\n\n| a | b |\n|---|---|\n| 1 | 2 |"
    )
    assert '<p class="heading">Plan</p>' in html
    assert "<li><em>probe</em></li>" in html
    assert "<strong>win</strong>" in html
    assert '<span class="tok-k">for</span>' in html
    assert "<td>1</td>" in html


def test_a_board_keeps_its_spaces_and_line_ends() -> None:
    html = rendered("X . O\n.   .\n\\boxed{probe 1 2}")
    text = re.sub(r"<[^>]+>", "", html)
    assert text.strip() == "X . O\n.   .\n\\boxed{probe 1 2}"


@pytest.mark.parametrize(
    "text", [*ATTACKS, "![x](https://example.org/x.png)", "<https://example.org>", "[a]: http://x\n\n[a]"]
)
def test_nothing_that_acts_comes_out_and_the_text_stands_as_written(text: str) -> None:
    html = rendered(text)
    assert set(TAG.findall(html)) <= {"p", "br", "span", "code", "pre"}
    assert inventory(html).wrong == []
    assert "href" not in re.sub(r">[^<]*<", "><", html)
    assert "src=" not in re.sub(r">[^<]*<", "><", html)


def test_entities_and_invisible_characters_are_shown_and_not_obeyed() -> None:
    html = rendered("&lt;b&gt; \u202eevil\u200b `\x1b[31m` &#106;avascript")
    assert "&amp;lt;b&amp;gt;" in html
    assert "\u202e" not in html
    assert 'title="invisible character U+202E"' in html
    assert "ESC" in html
    assert "&amp;#106;avascript" in html


@pytest.mark.parametrize(
    "text",
    [
        "[" * 20_000,
        "*" * 20_000,
        "`" * 20_000,
        "> " * 10_000,
        "- " * 10_000,
        "_a_ " * 5_000,
        "|" * 20_000,
        "```\n" * 5_000,
        "a\n" * 10_000,
    ],
    ids=["brackets", "stars", "ticks", "quotes", "lists", "emphasis", "pipes", "fences", "lines"],
)
def test_no_text_takes_long(text: str) -> None:
    started = time.process_time()
    rendered(text[:PREVIEW_CHARACTERS])
    assert time.process_time() - started < 2


def test_the_choice_is_remembered_and_the_address_can_say_otherwise(run: Any, viewer: Client) -> None:
    episode = run.episodes.first()
    transcript_of(episode, [{"observation": "look", "reply": "**go** <b>"}])
    address = f"/runs/{run.pk}/episodes/{episode.pk}/"
    raw = viewer.get(address).content.decode()
    assert "**go** &lt;b&gt;" in raw
    shown = viewer.get(f"{address}?view=rendered").content.decode()
    assert "<strong>go</strong> &lt;b&gt;" in shown
    assert "<strong>go</strong>" in viewer.get(address).content.decode()
    environment = run.environments.filter(superseded=False).first()
    play = run.episodes.filter(environment=environment, arm="unhinted", offset=0).first().play
    pair = viewer.get(f"/runs/{run.pk}/pairs/{environment.key}/{play}/").content.decode()
    assert 'class="rendered"' in pair
    assert 'class="raw"' not in pair
    assert 'class="raw"' in viewer.get(f"/runs/{run.pk}/pairs/{environment.key}/{play}/?view=raw").content.decode()
    assert "**go**" in viewer.get(address).content.decode()
    assert viewer.get(f"{address}?view=%3Cscript%3E").status_code == 200


def test_every_hostile_transcript_is_text_when_rendered(ingested: Any, viewer: Client) -> None:
    run = ingested(hostile=True, seed=3)
    for episode in run.episodes.all()[:6]:
        html = viewer.get(f"/runs/{run.pk}/episodes/{episode.pk}/?view=rendered").content.decode()
        assert inventory(html).wrong == []
    more = viewer.get(f"/runs/{run.pk}/episodes/{episode.pk}/turns/?from=0&view=rendered").content.decode()
    assert inventory(more).wrong == []


def test_a_page_renders_so_much_and_shows_the_rest_raw(run: Any, viewer: Client) -> None:
    episode = run.episodes.first()
    turns = PAGE_CHARACTERS // PREVIEW_CHARACTERS + 5
    transcript_of(episode, [{"observation": f"*{at}* " + "word " * 4_000, "reply": "ok"} for at in range(turns)])
    type(episode).objects.filter(pk=episode.pk).update(turns=turns)
    html = viewer.get(f"/runs/{run.pk}/episodes/{episode.pk}/?view=rendered").content.decode()
    assert "<em>0</em>" in html
    assert f"*{turns - 1}* word" in html
    assert "the rest is raw" in html
