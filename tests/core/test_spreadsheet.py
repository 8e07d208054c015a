"""Cells that a spreadsheet would run stay text."""

from __future__ import annotations

import pytest

from webapp.core.spreadsheet import csv_text, safe_cell


@pytest.mark.parametrize(
    "text", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "\n=1", '=HYPERLINK("http://x","y")', "  =1"]
)
def test_case_25_what_would_start_a_formula_gets_an_apostrophe(text: str) -> None:
    assert safe_cell(text) == f"'{text}"


@pytest.mark.parametrize(
    ("value", "cell"), [("a=1", "a=1"), ("", ""), (None, ""), (-0.5, "-0.5"), (True, "True"), ("'x", "'x")]
)
def test_everything_else_stays_as_it_is(value: object, cell: str) -> None:
    assert safe_cell(value) == cell


def test_a_table_is_quoted_where_needed() -> None:
    assert csv_text(["name", "n"], [["a,b", 1], ["=1", None]]) == 'name,n\r\n"a,b",1\r\n\'=1,\r\n'
