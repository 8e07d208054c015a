"""Prompt sets by name."""

from __future__ import annotations

from trainer.prompts import PromptSet


def prompt_set(name: str) -> PromptSet:
    """The prompt set of a setting (`full` or `compact`). Raises `KeyError` for another name; the settings allow no other."""
    if name == "full":
        from trainer.prompts.full import FullPrompts

        return FullPrompts()
    if name == "compact":
        from trainer.prompts.compact import CompactPrompts

        return CompactPrompts()
    raise KeyError(name)
