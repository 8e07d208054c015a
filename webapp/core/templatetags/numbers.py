"""Filters that write numbers one way everywhere: three significant digits, a true minus, "–" for no value.

``static/js/format.js`` has the same rules for live updates; a test holds the two together.
"""

from __future__ import annotations

import math
from decimal import ROUND_HALF_UP, Decimal

from django import template

register = template.Library()

NO_VALUE = "–"
_MINUS = "−"
_STEPS = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_BYTE_STEPS = ((1024**4, "TiB"), (1024**3, "GiB"), (1024**2, "MiB"), (1024, "KiB"))


def _number(value: object) -> float | None:
    """The value as a float; None for anything that is no number (None, text, booleans)."""
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        return None
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _fixed(magnitude: float, decimals: int) -> str:
    """A magnitude with that many decimals, exact halves upwards as JavaScript does it (Python's own way is to even)."""
    return f"{Decimal(magnitude).quantize(Decimal(1).scaleb(-decimals), rounding=ROUND_HALF_UP):f}"


def _special(number: float) -> str | None:
    if math.isnan(number):
        return "NaN"
    if math.isinf(number):
        return "∞" if number > 0 else f"{_MINUS}∞"
    return None


def _three_digits(magnitude: float) -> str:
    """A magnitude in (0, 1000) with three significant digits; below 0.001 in powers of ten."""
    if magnitude < 0.001:
        mantissa, exponent = f"{magnitude:.2e}".split("e")
        return f"{mantissa}e{_MINUS}{-int(exponent)}" if int(exponent) < 0 else f"{mantissa}e{int(exponent)}"
    decimals = 2 - math.floor(math.log10(magnitude))
    text = _fixed(magnitude, max(decimals, 0))
    # 9.996 rounds up to one digit more before the point: drop one after it.
    if float(text) >= 10 ** (3 - decimals) and decimals > 0:
        text = _fixed(magnitude, decimals - 1)
    return text


@register.filter
def num(value: object) -> str:
    """0.4137 → 0.414, 12345 → 12.3k, −2 → −2.00, 0 → 0, None → –, nan → NaN. Whole numbers under 1000 stay whole."""
    number = _number(value)
    if number is None:
        return NO_VALUE
    special = _special(number)
    if special is not None:
        return special
    if number == 0:
        return "0"
    sign = _MINUS if number < 0 else ""
    magnitude = abs(number)
    if isinstance(value, int) and magnitude < 1000:
        return f"{sign}{int(magnitude)}"
    if magnitude >= 999.5:
        for step, suffix in _STEPS:
            if magnitude >= step * 0.9995:
                scaled = magnitude / step
                return f"{sign}{_three_digits(scaled) if scaled < 999.5 else f'{scaled:.3g}'}{suffix}"
    return sign + _three_digits(magnitude)


@register.filter
def count(value: object) -> str:
    """An exact whole number with thin spaces between thousands: 41200 → 41 200. Anything else: –."""
    number = _number(value)
    if number is None or not math.isfinite(number):
        return NO_VALUE
    whole = int(value) if isinstance(value, int) else round(number)
    text = f"{abs(whole):,}".replace(",", "\u202f")
    return f"{_MINUS}{text}" if whole < 0 else text


@register.filter
def interval(value: object, half_width: object) -> str:
    """``0.4213|interval:0.0512`` → 0.42 ± 0.05. The half width has one digit (two when it starts with 1).

    Without a half width only the value is written, three digits; without a value, –.
    """
    centre, half = _number(value), _number(half_width)
    if centre is None or half is None or not math.isfinite(centre) or not math.isfinite(half) or half <= 0:
        return num(value)
    exponent = math.floor(math.log10(half))
    leading = half / 10**exponent
    digits = 2 if leading < 1.95 else 1
    decimals = max(0, digits - 1 - exponent)
    text = _fixed(abs(centre), decimals)
    sign = _MINUS if centre < 0 and float(text) != 0 else ""
    return f"{sign}{text} ± {_fixed(half, decimals)}"


@register.filter
def pct(value: object) -> str:
    """A share as a percentage: 0.125 → 12.5 %, 1 → 100 %, None → –."""
    number = _number(value)
    if number is None:
        return NO_VALUE
    special = _special(number)
    if special is not None:
        return special
    share = round(number * 100, 1)
    text = f"{abs(share):.0f}" if share == int(share) else f"{abs(share):.1f}"
    return f"{_MINUS if share < 0 else ''}{text}\u202f%"


@register.filter
def duration(seconds: object) -> str:
    """0.042 → 42 ms, 7.5 → 7.5 s, 75 → 1 min 15 s, 7380 → 2 h 3 min, 187200 → 2 d 4 h."""
    number = _number(seconds)
    if number is None or not math.isfinite(number) or number < 0:
        return NO_VALUE
    if number < 0.9995:
        return f"{_fixed(number * 1000, 0)} ms" if number else "0 s"
    if number < 9.95:
        return f"{_fixed(number, 1)} s"
    whole = int(_fixed(number, 0))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    minutes = whole // 60
    if minutes < 24 * 60:
        return f"{minutes // 60} h {minutes % 60} min"
    hours = minutes // 60
    return f"{hours // 24} d {hours % 24} h"


@register.filter
def size(value: object) -> str:
    """Bytes: 512 → 512 B, 2202009 → 2.10 MiB."""
    number = _number(value)
    if number is None or not math.isfinite(number) or number < 0:
        return NO_VALUE
    for step, unit in _BYTE_STEPS:
        if number >= step:
            scaled = number / step
            return f"{_three_digits(scaled) if scaled < 999.5 else f'{scaled:.0f}'} {unit}"
    return f"{round(number)} B"
