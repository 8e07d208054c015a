"""The design system's components. Pages use these and the classes of static/css; the /design page shows them all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from django import template
from django.forms import BoundField
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString, mark_safe

from webapp.core.highlight import code_lines
from webapp.core.icons import ICONS
from webapp.core.keys import KEYS

register = template.Library()

ARMS = ("unhinted", "hinted")
_TONES = {
    "live": ("running", "starting", "resuming"),
    "wait": ("queued", "pausing", "stopping", "reconnecting", "paused", "invited", "todo", "in review", "waiting"),
    "done": ("completed", "finished", "stopped"),
    "good": ("passed", "accepted", "won", "ok", "verified"),
    "bad": ("failed", "lost", "rejected", "error", "faulty", "quarantined", "hung"),
    "warn": ("stale", "leaky", "flagged", "truncated", "unverified"),
    "none": ("deactivated", "archived", "superseded"),
}
_TONE_OF = {word: tone for tone, words in _TONES.items() for word in words}
_TONE_ICON = {"good": "check", "bad": "cross", "warn": "warning", "done": "check"}


@register.simple_tag
def icon(name: str, label: str = "") -> SafeString:
    """One of our own 16-unit line icons. With ``label`` it speaks to screen readers, without it is decoration."""
    shape = mark_safe(ICONS[name])  # noqa: S308 - constants of ours
    if label:
        return format_html('<svg class="icon" viewBox="0 0 16 16" role="img" aria-label="{}">{}</svg>', label, shape)
    return format_html('<svg class="icon" viewBox="0 0 16 16" aria-hidden="true">{}</svg>', shape)


@register.simple_tag
def key(name: str, label: str = "") -> SafeString:
    """Attributes that bind an element to an entry of core/keys.py: ``{% key "search" "find a metric" %}``. KeyError for no entry."""
    entry = KEYS[name]
    heavy = mark_safe(" data-key-heavy") if entry.is_heavy else mark_safe("")
    return format_html('data-key="{}" data-key-label="{}"{}', entry.key, label or entry.label, heavy)


@register.simple_tag
def key_for(choice: object, label: str) -> SafeString:
    """The same for one of a row of choices (a digit, or a letter of its own) and for the addresses of the top bar (``g r``)."""
    return format_html('data-key="{}" data-key-label="{}"', choice, label)


@register.simple_tag
def chip(word: object, detail: str = "", tone: str = "") -> SafeString:
    """A state in a word, with colour and a second cue: ``{% chip run.status detail="last event 3 s ago" %}``.

    ``tone`` (live, wait, good, bad, warn, none) is found from the word when not given. Note "lost" is bad here: a run that
    was lost. For episode outcomes use ``{% outcome %}``.
    """
    text = str(word)
    chosen = tone or _TONE_OF.get(text.lower(), "none")
    if chosen == "live":
        cue: SafeString = mark_safe('<span class="dot"></span>')
    elif chosen in _TONE_ICON:
        cue = icon(_TONE_ICON[chosen])
    else:
        cue = mark_safe("")
    extra = format_html('<span class="chip-detail">{}</span>', detail) if detail else ""
    return format_html('<span class="chip {}">{}{}{}</span>', chosen, cue, text, extra)


@register.simple_tag
def arm(name: str) -> SafeString:
    """The label of an arm in its fixed hue. Raises ValueError for anything but unhinted and hinted."""
    if name not in ARMS:
        raise ValueError(f"arm is {name!r}, not unhinted or hinted")
    return format_html('<span class="arm {}">{}</span>', name, name)


# How an episode ended: the shape of its mark and the tone of its chip. Anything else is a fault.
_OUTCOMES = {
    "won": ("won", "good"),
    "lost": ("lost", "bad"),
    "turn_limit": ("limit", "none"),
    "truncated_by_env": ("limit", "none"),
    "length": ("limit", "none"),
    "context_full": ("limit", "none"),
}
_FAULT = ("fault", "warn")


@register.simple_tag
def outcome(status: str) -> SafeString:
    """How an episode ended, as a chip with the same mark the strips use: won, lost, a limit, or a fault."""
    shape, tone = _OUTCOMES.get(status, _FAULT)
    return format_html(
        '<span class="chip {}"><span class="pip {}"></span>{}</span>', tone, shape, status.replace("_", " ")
    )


@register.inclusion_tag("components/outcomes.html")
def outcomes(arm_name: str, episodes: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """All episodes of one arm as a strip of marks. Each episode: ``status`` and, to be a link, ``url`` (and ``label``)."""
    if arm_name not in ARMS:
        raise ValueError(f"arm is {arm_name!r}, not unhinted or hinted")
    marks = [
        {
            "shape": _OUTCOMES.get(str(item["status"]), _FAULT)[0],
            "status": str(item["status"]).replace("_", " "),
            "url": item.get("url", ""),
            "label": item.get("label", ""),
        }
        for item in episodes
    ]
    won = sum(1 for item in episodes if item["status"] == "won")
    return {"arm_name": arm_name, "marks": marks, "won": won, "total": len(marks)}


@register.simple_tag
def when(moment: datetime | None) -> SafeString:
    """An instant as "4 min ago", kept current by shell.js, exact with zone in the tooltip. None is "–"."""
    if moment is None:
        return mark_safe("–")
    utc = moment.astimezone(timezone.get_default_timezone())
    exact = utc.strftime("%Y-%m-%d %H:%M:%S UTC")
    spoken = relative(moment=moment, now=timezone.now())
    return format_html('<time datetime="{}" title="{}" data-relative>{}</time>', utc.isoformat(), exact, spoken)


def relative(*, moment: datetime, now: datetime) -> str:
    """ "3 s ago", "4 min ago", "2 h ago", "5 d ago", then the date; the future is "in 3 s"."""
    gap = (now - moment).total_seconds()
    steps = abs(gap)
    if steps < 1:
        return "now"
    if steps < 60:
        text = f"{int(steps)} s"
    elif steps < 3600:
        text = f"{int(steps // 60)} min"
    elif steps < 48 * 3600:
        text = f"{int(steps // 3600)} h"
    elif steps < 14 * 86400:
        text = f"{int(steps // 86400)} d"
    else:
        return moment.strftime("%Y-%m-%d")
    return f"{text} ago" if gap > 0 else f"in {text}"


@register.inclusion_tag("components/copy.html")
def copy(text: object, label: str = "copy") -> dict[str, Any]:
    """A small button that copies ``text``; ``label`` names it for screen readers and the tooltip."""
    return {"text": str(text), "label": label}


@register.inclusion_tag("components/figure.html")
def figure(
    label: str, value: object, unit: str = "", note: str = "", key: str = "", arm_name: str = ""
) -> dict[str, Any]:
    """A key figure. ``key`` becomes data-figure, by which live updates find it; ``note`` is the small line below."""
    return {"label": label, "value": value, "unit": unit, "note": note, "key": key, "arm": arm_name}


@register.inclusion_tag("components/empty.html")
def empty(title: str, text: str = "", url: str = "", action: str = "", icon_name: str = "") -> dict[str, Any]:
    """An empty state: what is missing, and the next step as a link."""
    return {"title": title, "text": text, "url": url, "action": action, "icon_name": icon_name}


@register.inclusion_tag("components/stages.html")
def stages(items: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The strip of a rollout's stages. Each: ``name``, ``state`` (done, active, todo, failed), maybe ``done``, ``total``, ``note``."""
    return {"items": items}


@register.inclusion_tag("components/tabs.html")
def tabs(items: Sequence[Mapping[str, Any]], label: str = "Sections") -> dict[str, Any]:
    """Tabs that are links. Each: ``label``, ``url``, ``active``, maybe ``count``."""
    return {"items": items, "label": label}


@register.inclusion_tag("components/crumbs.html")
def crumbs(*parts: str) -> dict[str, Any]:
    """Breadcrumb: ``{% crumbs "Runs" runs_url run.name run_url "Charts" %}``: pairs of text and address, the last text alone."""
    texts, urls = parts[0::2], (*parts[1::2], "")
    return {"items": [{"text": text, "url": url} for text, url in zip(texts, urls, strict=False)]}


@register.inclusion_tag("components/pager.html", takes_context=True)
def pager(context: Mapping[str, Any], page: Any, noun: str = "rows") -> dict[str, Any]:
    """Links of a keyset page (core/pagination.py): first and next; other query parameters are kept."""
    query = context["request"].GET.copy()
    query.pop("after", None)
    first = query.urlencode()
    query["after"] = page.next_cursor
    return {
        "page": page,
        "noun": noun,
        "first": f"?{first}",
        "next": f"?{query.urlencode()}" if page.next_cursor else "",
    }


@register.inclusion_tag("components/field.html")
def field(bound: BoundField, unit: str = "", wide: bool = False) -> dict[str, Any]:
    """A form field: label, control, unit, help, errors, tied together for screen readers."""
    described = " ".join(
        name
        for name, there in ((f"{bound.auto_id}_help", bound.help_text), (f"{bound.auto_id}_error", bound.errors))
        if there
    )
    attributes: dict[str, Any] = {"aria-describedby": described} if described else {}
    if bound.errors:
        attributes["aria-invalid"] = "true"
    widget = bound.field.widget
    kind = getattr(widget, "input_type", "textarea")
    if kind == "radio":
        return {"field": bound, "options": list(bound), "kind": kind, "wide": wide, "described": described}
    return {"field": bound, "control": bound.as_widget(attrs=attributes), "unit": unit, "wide": wide, "kind": kind}


@register.inclusion_tag("components/code.html")
def code(source: str, language: str = "python", prefix: str = "L", name: str = "") -> dict[str, Any]:
    """Highlighted source with linkable lines (ids ``<prefix>1`` …), a name and a copy button."""
    lines = code_lines(source, language=language, prefix=prefix)
    return {
        "lines": lines,
        "source": source,
        "name": name,
        "language": language,
        "count": source.removesuffix("\n").count("\n") + 1,
    }


@register.inclusion_tag("components/turn.html")
def turn(
    role: str,
    text: str,
    number: int | None = None,
    tokens: int | None = None,
    reward: float | None = None,
    hint: str = "",
    arm_name: str = "",
    is_first_difference: bool = False,
    anchor: str = "",
    note: str = "",
    html: SafeString | None = None,
    hint_html: SafeString | None = None,
    label: str = "",
) -> dict[str, Any]:
    """One block of a transcript: ``role`` is system, observation or action; all text is treated as hostile.

    ``label`` is the word shown for the role where it has another one, as in a conversation.

    ``hint`` is the hint text when it was injected here (shown apart, in the hinted hue). ``anchor`` is the element id.
    ``html`` and ``hint_html`` are the two as safe HTML (episodes/rendering.py), shown in their place when given.
    """
    return {
        "role": role,
        "text": text,
        "number": number,
        "tokens": tokens,
        "reward": reward,
        "hint": hint,
        "arm": arm_name,
        "is_first_difference": is_first_difference,
        "anchor": anchor,
        "note": note,
        "html": html,
        "hint_html": hint_html,
        "label": label or role,
    }


@register.simple_tag
def meter(value: float | None, label: str, tone: str = "") -> SafeString:
    """A share in [0, 1] as a thin bar; ``label`` is read to screen readers; ``tone`` colours it (unhinted, hinted, good, bad)."""
    if value is None:
        return format_html('<span class="meter none" title="{}">–</span>', label)
    width = round(max(0.0, min(1.0, value)) * 100, 1)
    return format_html(
        '<svg class="meter {}" viewBox="0 0 100 4" preserveAspectRatio="none" role="img" aria-label="{}">'
        '<rect class="meter-rail" width="100" height="4"></rect><rect class="meter-fill" width="{}" height="4"></rect></svg>',
        tone, label, width,
    )  # fmt: skip
