"""What a model wrote is shown as text, and what is invisible in it becomes visible."""

import re

import pytest
from django.template import Context, Template

from webapp.core.highlight import MAX_SHOWN_LINES, code_lines
from webapp.core.hostile import plain, visible

ATTACKS = [
    "<img src=x onerror=alert(1)>",
    "<svg/onload=alert(1)>",
    '"></a><script>alert(1)</script>',
    "<iframe srcdoc='<script>1</script>'>",
    "<b hx-get='/accounts/logout/' hx-trigger='load'>x</b>",
    "</span></pre><script>alert(1)</script>",
    "{% csrf_token %}{{ settings.SECRET_KEY }}",
]


def tags(html: str) -> set[str]:
    return set(re.findall(r"<\s*/?\s*([a-zA-Z]+)", html))


@pytest.mark.parametrize("attack", ATTACKS)
def test_markup_is_shown_as_text_in_transcripts_code_titles_and_states(attack: str) -> None:
    assert tags(visible(attack)) <= {"span"}
    assert tags(code_lines(attack, language="python", prefix="L")) <= {"span", "a"}
    page = Template(
        "{% turn 'action' text 1 hint=text note=text anchor='t1' %}{% code text 'python' 'L' text %}{% chip text detail=text %}"
        "{% figure text text note=text %}{% empty text text '/x' text %}"
        "{% copy text text %}{% outcomes 'hinted' episodes %}{{ text|plain }}"
    ).render(Context({"text": attack, "episodes": [{"status": attack, "url": "#a", "label": attack}]}))
    assert not tags(page) & {"img", "script", "iframe", "b"}
    assert "<svg/" not in page
    without_values = re.sub(r'"[^"]*"', "", page)
    assert not re.search(r"<[^>]*\shx-(get|trigger)=", without_values)


def test_controls_bidi_overrides_and_zero_widths_become_marks() -> None:
    html = visible("a\x00b\u202ec\u200bd\x1b[31m\ufeff\U000e0041\udc00")
    labels = re.findall(r'<span class="ctl" title="invisible character [^"]+">([^<]+)</span>', html)
    assert labels == ["NUL", "U+202E", "ZWSP", "ESC", "BOM", "U+E0041", "U+DC00"]
    assert plain("x\u202ey") == "x⟨U+202E⟩y"
    html.encode("utf-8")


def test_ordinary_writing_is_left_alone() -> None:
    text = "naïve Ω ≤ 3 — 中文, עברית, emoji 🙂\n\tindented"
    assert visible(text) == text
    assert visible("a\r\nb") == "a\nb"


def test_a_tower_of_combining_marks_is_cut() -> None:
    assert visible("e" + "\u0301" * 10_000) == "e" + "\u0301" * 4 + "…"


def test_each_source_line_has_a_number_to_link_to() -> None:
    html = code_lines("x = 1\n\ny = '<'\n", language="python", prefix="L")
    assert re.findall(r'id="(L\d+)"', html) == ["L1", "L2", "L3"]
    assert 'href="#L3"' in html
    assert "&lt;" in html


def test_very_long_sources_are_cut_and_say_so() -> None:
    html = code_lines("x\n" * (MAX_SHOWN_LINES + 10), language="python", prefix="L")
    assert f'id="L{MAX_SHOWN_LINES}"' in html
    assert f'id="L{MAX_SHOWN_LINES + 1}"' not in html
    assert "10 more lines" in html


def test_an_unknown_language_is_plain_text() -> None:
    assert "class=&quot;tok" not in code_lines("x = 1", language="klingon", prefix="L")
    assert ">x = 1\n<" in code_lines("x = 1", language="klingon", prefix="L")
