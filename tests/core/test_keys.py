"""Keys: one registry, and templates that name its entries."""

from __future__ import annotations

import re
from pathlib import Path

from webapp.core.context_processors import NAVIGATION
from webapp.core.keys import GO, KEYS, SHELL
from webapp.core.templatetags.ui import key
from webapp.runs.page import ACT_BUTTONS

ROOT = Path(__file__).parents[2]
TEMPLATES = sorted((ROOT / "templates").rglob("*.html"))
NAMED = re.compile(r'\{% key "([^"]+)"')


def test_no_template_binds_a_key_of_its_own() -> None:
    wrong = [str(path) for path in TEMPLATES if "data-key=" in path.read_text(encoding="utf-8")]
    assert wrong == []


def test_every_name_in_a_template_is_an_entry_and_every_entry_is_used() -> None:
    used = {name for path in TEMPLATES for name in NAMED.findall(path.read_text(encoding="utf-8"))}
    used |= {act.name for act in ACT_BUTTONS}
    assert used == set(KEYS)


def test_only_the_shell_listens_to_keys_and_no_entry_takes_one_of_its_own() -> None:
    listeners = [
        path.name
        for path in (ROOT / "static" / "js").glob("*.js")
        if 'document.addEventListener("keydown"' in path.read_text(encoding="utf-8")
    ]
    assert listeners == ["shell.js"]
    assert {entry.key for entry in KEYS.values()}.isdisjoint({*SHELL, GO})


def test_chords_of_the_top_bar_and_of_pages_differ() -> None:
    chords = [entry.key for entry in KEYS.values() if entry.key.startswith(f"{GO} ")]
    taken = [*chords, *(f"{GO} {item.key}" for item in NAVIGATION)]
    assert len(taken) == len(set(taken))


def test_what_is_heavy_says_so_where_it_is_bound() -> None:
    assert key("stop") == 'data-key="S" data-key-label="stop" data-key-heavy'
    assert key("search", 'find "x"') == 'data-key="/" data-key-label="find &quot;x&quot;"'
