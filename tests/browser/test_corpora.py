"""A person uploads a corpus, sees what was found in it, and starts a run with it: real browser, real server, real worker."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import expect

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.django_db(transaction=True), pytest.mark.timeout(900)]

TEXTS = b'{"text": "Tiles of three by five cover a floor.", "title": "Tiles"}\nnot json\n{"text": "A lamp turns on twice."}\n'


def test_an_upload_becomes_a_choice_of_the_start_form(page: Any, worker: Any, patience: int) -> None:
    expect.set_options(timeout=patience)
    page.goto("/corpora/")
    page.get_by_role("link", name="Add corpus").first.click()
    page.get_by_label("Files").set_input_files({"name": "tiles.jsonl", "mimeType": "application/json", "buffer": TEXTS})
    page.locator("#upload-name").fill("my tiles")
    page.get_by_role("button", name="Upload").click()
    page.wait_for_url(re.compile(r"/corpora/\d+/$"))
    expect(page.locator("#corpus-check")).to_contain_text("usable documents")  # the page follows the check by itself
    expect(page.locator("#corpus-check")).to_contain_text("tiles.jsonl, line 2")
    page.get_by_role("link", name="Start a run with it").click()
    expect(page.locator("#set-corpus-source")).to_have_value(asked_source(page))
    chooser = page.get_by_label("source: listed ones")
    expect(chooser.locator("option:checked")).to_have_text("my tiles, 2 documents")
    page.locator("#set-corpus-source").fill("builtin:demo")
    assert chooser.evaluate("(list) => list.value") in ("", "builtin:demo")
    chooser.select_option(label="my tiles, 2 documents")
    assert page.locator("#set-corpus-source").input_value().endswith("/tiles.jsonl")
    expect(page.locator("[data-changes]")).to_contain_text("corpus.source")


def asked_source(page: Any) -> Any:
    """What the address asked the form to hold."""
    return parse_qs(urlsplit(page.url).query)["corpus.source"][0]


def stored_files(settings: Any) -> list[Path]:
    """Every file of every corpus."""
    folder = Path(settings.SPADEWORK_HOME) / "corpora"
    return sorted(file for file in folder.rglob("*") if file.is_file())


def test_a_refused_upload_says_why_and_leaves_nothing(page: Any, live_site: str, patience: int, settings: Any) -> None:
    from webapp.corpora.models import Corpus

    page.expected_statuses = {422}
    before = stored_files(settings)  # another test's corpus may be there
    page.goto("/corpora/new/")
    page.get_by_label("Files").set_input_files(
        {"name": "c.zip", "mimeType": "application/zip", "buffer": b"PK\x03\x04"}
    )
    page.get_by_role("button", name="Upload").click()
    expect(page.locator("#corpus-problem")).to_contain_text("archives are not unpacked", timeout=patience)
    assert not Corpus.objects.filter(origin="uploaded").exists()
    assert stored_files(settings) == before
