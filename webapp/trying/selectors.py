"""Reading sessions: a person's own, what was said and played in one, and what the run's agent did with the same seed."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet
from django.db.models.functions import Now
from django.http import Http404

from webapp.accounts.models import User
from webapp.accounts.roles import Role, has_role
from webapp.episodes.selectors import HINT_MARK, Text, TurnView
from webapp.runs.models import Run
from webapp.trying.jobs import LOST
from webapp.trying.models import HELD, Exchange, Trial

LISTED = 20


def access_trial(*, run: Run, trial_id: int, person: User) -> Trial:
    """The person's session (an admin sees everybody's); one whose worker died reads as lost. Raises Http404."""
    rows = Trial.objects.filter(run=run, pk=trial_id).select_related("by")
    if not has_role(person, Role.ADMIN):
        rows = rows.filter(by=person)
    trial = rows.first()
    if trial is None:
        raise Http404("There is no such session of yours.")
    if trial.state in HELD and not rows.filter(leased_until__gte=Now()).exists():
        trial.state, trial.failure = Trial.State.LOST, LOST
    return trial


def trials_of(*, run: Run, checkpoint: str, person: User) -> QuerySet[Trial]:
    """The person's sessions with the checkpoint, newest first."""
    return Trial.objects.filter(run=run, checkpoint=checkpoint, by=person).order_by("-id")[:LISTED]


def exchanges_of(*, trial: Trial, kind: str) -> list[Exchange]:
    """Messages of the conversation that goes on, oldest first; or plays, newest first."""
    rows = trial.exchanges.filter(kind=kind)
    if kind == Exchange.Kind.CHAT:
        return list(rows.filter(conversation=trial.conversation).order_by("id"))
    return list(rows.select_related("environment__run").defer("turns", "environment__code").order_by("-id")[:LISTED])


def access_play(*, trial: Trial, exchange_id: int | None) -> Exchange | None:
    """One play of the session, the newest without a number; None when there is none. Raises Http404."""
    rows = trial.exchanges.filter(kind=Exchange.Kind.PLAY).select_related("environment__run").order_by("-id")
    if exchange_id is None:
        return rows.first()
    found = rows.filter(pk=exchange_id).first()
    if found is None:
        raise Http404("There is no such play in this session.")
    return found


def messages_of(*, exchange: Exchange) -> list[dict[str, str]]:
    """The conversation as the model is to see it: system prompt, what was said and answered, and this message."""
    messages = [{"role": "system", "content": exchange.system}] if exchange.system else []
    before = Exchange.objects.filter(
        trial_id=exchange.trial_id, kind=Exchange.Kind.CHAT, conversation=exchange.conversation,
        state=Exchange.State.DONE, pk__lt=exchange.pk,
    ).order_by("id")  # fmt: skip
    for one in before:
        messages.append({"role": "user", "content": one.text})
        messages.append({"role": "assistant", "content": str(one.answer.get("text", ""))})
    return [*messages, {"role": "user", "content": exchange.text}]


def turns_of(exchange: Exchange) -> list[TurnView]:
    """A play as a transcript, in the form of every other one; the hint is taken out of the first observation."""
    return [_turn(number, turn, exchange.arm) for number, turn in enumerate(exchange.turns)]


def _turn(number: int, turn: dict[str, Any], arm: str) -> TurnView:
    observation, hint = str(turn.get("observation") or ""), ""
    if arm == "hinted" and number == 0:
        observation, _, hint = observation.partition(HINT_MARK)
    reply = str(turn.get("reply") or "")
    return TurnView(
        number=number, observation=_text(observation, turn.get("observation_characters")), hint=hint,
        reply=_text(reply, turn.get("reply_characters")), action=turn.get("action"), reward=turn.get("reward"),
        terminated=bool(turn.get("terminated")), truncated=bool(turn.get("truncated")),
        observation_tokens=int(turn.get("observation_tokens") or 0), reply_tokens=int(turn.get("reply_tokens") or 0),
        logprob_mean=turn.get("logprob_mean"),
    )  # fmt: skip


def _text(text: str, characters: Any) -> Text:
    """``characters`` is how long it was before it was cut, None when it was not."""
    return Text(shown=text, characters=int(characters) if characters else len(text))
