"""Each of the 25 cases of README.md has a test that is named after it."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parents[1]
NAMED = re.compile(r"^(?:async )?def test_case_(\d\d)_\w+", re.MULTILINE)
ROW = re.compile(r"^\| (\d+) \|", re.MULTILINE)


def test_every_case_has_a_test_named_after_it() -> None:
    listed = {int(number) for number in ROW.findall((TESTS / "cases" / "README.md").read_text(encoding="utf-8"))}
    assert listed == set(range(1, 26))
    found = {int(number) for path in TESTS.rglob("test_*.py") for number in NAMED.findall(path.read_text("utf-8"))}
    assert found == listed
