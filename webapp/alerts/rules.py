"""What in a rollout's metrics is an alert. Pure: values in, (kind, sentence) out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from webapp.alerts.models import Kind

#: Fewer than this share of at least so many candidates passed.
GATE_COLLAPSE_SHARE = 0.1
GATE_COLLAPSE_CANDIDATES = 4
_NAMED = 5


def alerts_in(values: Mapping[str, Any], not_finite: Mapping[str, str]) -> Iterator[tuple[Kind, str]]:
    """The alerts of one rollout; a metric that is None was not measured and alerts nothing."""
    if not_finite:
        names = [f"{name} is {what}" for name, what in sorted(not_finite.items())]
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        yield Kind.NOT_FINITE, f"{', '.join(names[:_NAMED])}{more}."
    if _is(values, "optim/skipped", 1.0):
        yield Kind.UPDATE_SKIPPED, "The update was skipped: its loss or gradient was not finite; the weights stayed."
    if _is(values, "win_rate/unhinted", 0.0):
        yield Kind.NEVER_WON, "No unhinted episode was won: nothing to learn from."
    if _is(values, "win_rate/unhinted", 1.0):
        yield Kind.ALWAYS_WON, "Every unhinted episode was won: nothing to learn from."
    if _is(values, "group/frac_zero_spread", 1.0):
        yield Kind.NO_SPREAD, "In every group all rewards are equal: the update has no gradient from them."
    share, candidates = values.get("gates/pass_rate"), values.get("gates/candidates")
    if share is None or candidates is None:
        return
    if share < GATE_COLLAPSE_SHARE and candidates >= GATE_COLLAPSE_CANDIDATES:
        yield Kind.GATE_COLLAPSE, f"{share:.0%} of {candidates:.0f} candidates passed the gates."


def _is(values: Mapping[str, Any], name: str, wanted: float) -> bool:
    value = values.get(name)
    return value is not None and float(value) == wanted
