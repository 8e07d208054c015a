"""The System tab: empty before anything was measured, dashes for what could not be, charts over time."""

from __future__ import annotations

from typing import Any

from django.test import Client
from django.utils import timezone

from webapp.runs.models import SystemSample


def test_the_tab_is_empty_until_something_was_measured(run: Any, viewer: Client) -> None:
    assert "Nothing measured yet" in viewer.get(f"/runs/{run.pk}/system/").content.decode()


def test_what_could_not_be_measured_is_a_dash_not_zero(run: Any, viewer: Client) -> None:
    SystemSample.objects.create(run=run, attempt=1, at=timezone.now(), processes=4, memory_bytes=3 * 2**20)
    page = viewer.get(f"/runs/{run.pk}/system/")
    html = page.content.decode()
    assert "3.00 MiB" in html
    assert page.context["newest"].cpu_cores is None
    assert html.count(">–") >= 3
    body = viewer.get(f"/runs/{run.pk}/system/series/", {"name": ["system/memory_gib", "system/cpu_cores"]}).json()
    assert body["series"]["system/memory_gib"]["y"] == [3 / 1024]
    assert body["series"]["system/cpu_cores"]["y"] == [None]
