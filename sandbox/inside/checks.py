"""Exact checks of what a program returned; the host repeats those that matter, since a program can fake its replies."""

from __future__ import annotations

import math
import re
import sys
from typing import Any

# Control characters other than tab, newline and carriage return, and lone surrogates, are not text.
NOT_TEXT = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]")


_NOT_TEXT_BYTES = bytes(code for code in range(128) if NOT_TEXT.match(chr(code)))
_SHORT_CHARS = 64


def is_clean(text: str) -> bool:
    """Whether text has no character of `NOT_TEXT`. The pattern alone takes five times as long on an observation."""
    if len(text) <= _SHORT_CHARS:
        return text.isprintable() or NOT_TEXT.search(text) is None
    if text.isascii():
        return len(text.encode().translate(None, _NOT_TEXT_BYTES)) == len(text)
    return NOT_TEXT.search(text) is None


class ContractViolation(Exception):
    """The program broke the contract of spec 01, section 3. `kind` is `contract` or `output`."""

    def __init__(self, message: str, kind: str = "contract") -> None:
        """Keep the fault kind beside the message."""
        super().__init__(message)
        self.message = message
        self.kind = kind


def check_observation(value: Any, cap_chars: int, where: str) -> str:
    """The observation when it is non-empty text of at most `cap_chars` characters; raises `ContractViolation`."""
    if type(value) is not str:
        raise ContractViolation(f"{where}: the observation must be str, not {type(value).__name__}")
    if len(value) > cap_chars:
        raise ContractViolation(
            f"{where}: the observation has {len(value)} characters, more than {cap_chars}", "output"
        )
    if not is_clean(value):
        found = NOT_TEXT.search(value)
        assert found is not None
        code = ord(found.group())
        raise ContractViolation(f"{where}: the observation holds the control character U+{code:04X} at {found.start()}")
    if not value or value.isspace():
        raise ContractViolation(f"{where}: the observation is empty")
    return value


def _plain_number(value: Any) -> Any:
    """A numpy scalar as a Python number; anything else unchanged."""
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, numpy.number):
        return value.item()
    return value


def check_reward(value: Any, largest: float) -> float:
    """The reward as float when it is a finite int or float (no bool) within range; raises `ContractViolation`."""
    number = value if type(value) is float else _plain_number(value)
    if type(number) is not float and type(number) is not int:
        raise ContractViolation(f"step: the reward must be a number, not {type(value).__name__}")
    if type(number) is int and number.bit_length() > 64:
        raise ContractViolation(f"step: the reward is an integer of {number.bit_length()} bits")
    reward = float(number)
    if -largest <= reward <= largest:
        return reward
    if not math.isfinite(reward):
        raise ContractViolation(f"step: the reward is {reward}")
    raise ContractViolation(f"step: the reward {reward} lies outside [-{largest:g}, {largest:g}]")


def check_flag(value: Any, name: str) -> bool:
    """A real boolean; raises `ContractViolation`."""
    if value is not True and value is not False:
        raise ContractViolation(f"step: {name} must be True or False, not {type(value).__name__}")
    return value is True


def numbers_of(info: Any, where: str, entries: int) -> dict[str, float]:
    """The finite numbers of `info` with text keys, at most `entries`; everything else is dropped."""
    if type(info) is not dict:
        raise ContractViolation(f"{where}: info must be a dict, not {type(info).__name__}")
    if not info:
        return {}
    kept: dict[str, float] = {}
    for key, value in info.items():
        if type(key) is not str or len(key) > 64 or NOT_TEXT.search(key):
            continue
        number = _plain_number(value)
        if type(number) is bool or type(number) is float or (type(number) is int and number.bit_length() <= 64):
            kept_value = float(number)
            if math.isfinite(kept_value):
                kept[key] = kept_value
                if len(kept) == entries:
                    break
    return kept


def check_solution(value: Any, cap_actions: int, cap_chars: int) -> list[str] | None:
    """Actions a `solution()` returned: text, or a list or tuple of texts; None when it is neither."""
    if type(value) is str:
        value = [value]
    if type(value) not in (list, tuple) or not 0 < len(value) <= cap_actions:
        return None
    actions = [str(item) if type(item) in (int, float) else item for item in value]
    if not all(type(item) is str and 0 < len(item) <= cap_chars for item in actions):
        return None
    if not all(is_clean(item) for item in actions):
        return None
    return actions
