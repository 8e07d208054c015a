"""How taking a word from the document is counted."""

from __future__ import annotations

import pytest

from trainer.prompts import ShownDocument
from trainer.starter.measure import Design, family_words, uses_document

PUMP = ShownDocument(
    title="The pump and the cistern", text="The valve of the pump leaks, so close the valve. Open it right."
)


@pytest.mark.parametrize(
    ("line", "used"),
    [
        ('"""Find the hidden Pump by its Valve."""', True),
        ('"""Find the hidden Pumps by their Lids."""', False),  # the document has one pump
        ("class CisternSearchEnv:", True),
        ('self.note = "Right." if won else "Open."', False),  # the family's words, though the document says them too
        ('"""Find the hidden Val by its Lamp."""', False),  # the start of a word is not the word
        ("", False),
    ],
)
def test_a_document_is_used_when_a_word_no_family_writes_by_itself_stands_in_it(line, used):
    design = Design(skill="Logical Deduction", document=PUMP, code=line, tokens=1)
    assert uses_document(design) is used


def test_family_words_hold_no_word_of_a_theme():
    assert {"Right", "Found", "Search", "Unclear"} <= family_words()
    assert "Qqq" not in family_words()
