"""Whatever a model wrote is text: no page of a run full of attack strings holds an element or an attribute that they asked for."""

from __future__ import annotations

from collections.abc import Callable
from html.parser import HTMLParser
from typing import Any

import pytest
from django.test import Client

from tests.pages.synthetic import ATTACKS
from tests.pages.test_who_may_do_what import READ, address

NOT_HTML = {"series", "series_csv", "config_json", "log_file", "environment_code", "regret_series", "episode_raw"}
ADDRESS_ATTRIBUTES = ("href", "src", "action", "hx-get", "hx-post", "formaction")


class Inventory(HTMLParser):
    """What a browser would make of a page: elements that could act, and addresses."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.wrong: list[str] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag in ("img", "iframe", "object", "embed", "base", "style"):
            self.wrong.append(f"<{tag}>")
        if tag == "script" and "src" not in given and given.get("type") != "application/json":
            self.wrong.append("inline script")
        self.wrong += [
            f"{tag} {name}"
            for name in given
            if name.startswith("on") or name in ("style", "srcdoc", "hx-on", "hx-vals")
        ]
        for name in ADDRESS_ATTRIBUTES:
            value = given.get(name)
            if value and not value.startswith(("/", "?", "#")):
                self.wrong.append(f"{tag} {name}={value}")

    def handle_data(self, data: str) -> None:
        if self.get_starttag_text() is None or not str(self.get_starttag_text()).startswith("<textarea"):
            self.text.append(data)  # a form field holds the true text, to be edited


def inventory(html: str) -> Inventory:
    parser = Inventory()
    parser.feed(html)
    return parser


@pytest.fixture
def hostile(ingested: Callable[..., Any]) -> Any:
    """A run whose every free text is an attack, its own name, tags, notes and failure included."""
    run = ingested(hostile=True, status="failed", seed=3)
    run.name = f"{ATTACKS[2]} {ATTACKS[6]}"
    run.tags, run.notes, run.failure_message, run.preset = (
        [ATTACKS[0]],
        "\n".join(ATTACKS),
        " ".join(ATTACKS),
        ATTACKS[1],
    )
    run.save()
    return run


def test_case_21_no_page_obeys_hostile_text(hostile: Any, operator: Client) -> None:
    for name in READ:
        if name in NOT_HTML:
            continue
        answer = operator.get(address(hostile, name))
        assert answer.status_code == 200, name
        assert inventory(answer.content.decode()).wrong == [], name


def test_template_syntax_in_model_output_is_not_evaluated(hostile: Any, operator: Client) -> None:
    hostile.environments.update(class_name="{{ 7|add:7 }}Env", hint_text="{% now 'Y' %}")
    environment = hostile.environments.first()
    text = "".join(inventory(operator.get(f"/runs/{hostile.pk}/environments/{environment.key}/").content.decode()).text)
    assert "{{ 7|add:7 }}Env" in text
    assert "{% now 'Y' %}" in text


def test_control_and_direction_characters_never_reach_a_page_as_themselves(hostile: Any, operator: Client) -> None:
    for name in READ:
        if name in NOT_HTML:
            continue
        html = operator.get(address(hostile, name)).content.decode()
        # The copy button's data and form fields carry the true text on purpose; what is shown may not.
        shown = "".join(inventory(html).text)
        assert not {"\u202e", "\x1b", "\u200b"} & set(shown), name


def test_downloads_are_never_served_as_pages(hostile: Any, operator: Client) -> None:
    for name in ("environment_code", "episode_raw", "config_json", "log_file", "series_csv"):
        answer = operator.get(address(hostile, name))
        assert answer["Content-Disposition"].startswith("attachment"), name
        assert answer["Content-Type"].split(";")[0] in ("text/plain", "application/json", "text/csv"), name
        assert answer["X-Content-Type-Options"] == "nosniff", name
        assert "<" not in answer["Content-Disposition"], name


def test_the_policy_allows_no_inline_script_or_style(hostile: Any, operator: Client) -> None:
    policy = operator.get(address(hostile, "page"))["Content-Security-Policy"]
    assert "unsafe" not in policy
    assert "script-src 'self'" in policy


def test_a_metric_name_that_is_a_formula_is_harmless_in_the_csv(run: Any, viewer: Client) -> None:
    run.metricpoints.filter(name="loss/total").update(name='=HYPERLINK("http://x","y")')
    rows = viewer.get(f"/runs/{run.pk}/series.csv").content.decode()
    assert "\r\n\"'=HYPERLINK" in rows
    assert "\r\n=HYPERLINK" not in rows
    assert '\r\n"=HYPERLINK' not in rows


def test_a_metric_name_that_is_markup_stays_inside_its_json(run: Any, viewer: Client) -> None:
    run.metricpoints.filter(name="loss/total").update(name="loss/</script><script>alert(1)</script>")
    html = viewer.get(f"/runs/{run.pk}/charts/").content.decode()
    assert inventory(html).wrong == []
    assert "</script><script>alert" not in html
