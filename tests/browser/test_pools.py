"""A person puts environments into a pool and downloads it: judged by the sandbox in a real worker."""

from __future__ import annotations

import tarfile
from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.environments.conftest import GUESS

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.django_db(transaction=True), pytest.mark.timeout(900)]


def test_ticked_environments_become_a_download(
    page: Any, worker: Any, synthetic: Callable[..., Any], patience: int
) -> None:
    expect.set_options(timeout=patience)
    run = synthetic()
    run.begin(1)
    first, second = run.run.environments.filter(superseded=False).order_by("slot")[:2]
    first.code, second.code = GUESS, "class BrokenEnv:\n    def reset(\n"
    first.save()
    second.save()
    page.goto(f"{run.url}environments/")
    expect(page.get_by_role("button", name="Add the ticked")).to_be_disabled()
    for environment in (first, second):
        page.get_by_label(f"Tick {environment.key}").check()
    page.get_by_label("Name of a new pool").fill("two of them")
    page.get_by_role("button", name="Add the ticked 2").click()
    page.wait_for_url("**/pools/*/")
    expect(page.locator("h1")).to_have_text("two of them")
    page.get_by_role("button", name="Build").click()
    link = page.get_by_role("link", name="Download")
    expect(link).to_be_visible()  # the page follows the build by itself
    expect(page.locator("#pool-progress")).to_contain_text("1 program passed the gates again, 1 did not")
    with page.expect_download() as waiting:
        link.click()
    with tarfile.open(waiting.value.path()) as archive:
        games = [name for name in archive.getnames() if name.startswith("spade-pool/games/")]
        assert [archive.extractfile(name).read().decode() for name in games] == [GUESS]
