"""A body above the limit, sent by a real browser to the real server: the page is read although the sending was cut off."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.browser_site import served

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]
PATIENCE_MS = 300_000
#: A form of a page of ours (its policy allows no other) with a file of this size.
SUBMIT = """([path, mib]) => { const form = document.createElement("form");
  Object.assign(form, { method: "post", action: path, enctype: "multipart/form-data" });
  const field = Object.assign(document.createElement("input"), { type: "file", name: "files" });
  const chosen = new DataTransfer(); chosen.items.add(new File([new Uint8Array(mib * 1048576)], "tiles.jsonl")); field.files = chosen.files;
  form.append(field); document.body.append(form); form.submit(); }"""
SEND = """async ([path, mib, kind]) => { const blob = new Blob([new Uint8Array(mib * 1048576)], { type: kind });
  const form = new FormData(); form.append("files", blob, "tiles.jsonl");
  const answer = await fetch(path, { method: "POST", headers: { Accept: "application/json" }, body: kind ? blob : form });
  return [answer.status, answer.headers.get("Content-Type"), await answer.json()]; }"""


@pytest.fixture(scope="module")
def small_site(django_db_setup: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server that takes uploads of 1 MiB, so requests of 5 (the limit and what forms may have beside files)."""
    with served(tmp_path_factory.mktemp("small-site"), SPADEWORK_UPLOAD_MB="1") as address:
        yield address


@pytest.mark.parametrize("mib", [6, 48])
def test_a_browser_shows_the_page_that_says_the_limit(browser: Any, small_site: str, mib: int) -> None:
    page = browser.new_page(base_url=small_site)
    page.goto("/accounts/login/")
    with page.expect_navigation(timeout=PATIENCE_MS):
        page.evaluate(SUBMIT, ["/accounts/login/", mib])
    assert page.locator("h1").inner_text() == "This is larger than the server takes"
    assert "may hold at most 2.00 MiB" in page.locator("p").inner_text()
    page.close()


def test_a_script_reads_the_problem(browser: Any, small_site: str) -> None:
    page = browser.new_page(base_url=small_site)
    page.goto("/accounts/login/")
    for path, mib, sent_as, limit in (
        ("/corpora/upload/", 6, "", "5.00 MiB"),
        ("/api/v1/runs/", 3, "application/json", "2.00 MiB"),
    ):
        status, kind, body = page.evaluate(SEND, [path, mib, sent_as])
        assert (status, kind, body["code"]) == (413, "application/problem+json", "too-large")
        assert f"at most {limit}" in body["detail"]
    page.close()


def test_an_upload_in_chunks_of_unknown_length_is_answered(small_site: str) -> None:
    connection = HTTPConnection(urlsplit(small_site).netloc, timeout=60)
    for path, kind, limit in (
        ("/api/v1/corpora/", "multipart/form-data; boundary=b", "5.00 MiB"), ("/api/v1/runs/", "application/json", "2.00 MiB"),
    ):  # fmt: skip
        pieces = iter([b"x" * 1048576] * 6)
        connection.request("POST", path, pieces, {"Content-Type": kind}, encode_chunked=True)
        answer = connection.getresponse()
        told = json.loads(answer.read())
        assert (answer.status, told["code"]) == (413, "too-large")
        assert f"at most {limit}" in told["detail"]
        connection.close()
