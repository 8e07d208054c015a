"""Holding a session in a worker: the model's process, requests from the rows to it, its answers into the rows. Imported by tasks only."""

from __future__ import annotations

import time
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import transaction
from django.utils import timezone

from webapp.environments.jobs import claim, release, renew
from webapp.runs.storable import storable, storable_text
from webapp.runs.supervision.lease import host_name
from webapp.trying.child import ChildFailed, TryChild, try_command
from webapp.trying.jobs import end_exchanges
from webapp.trying.models import OPEN, OWED, Exchange, Trial
from webapp.trying.selectors import messages_of

LOOK_EVERY_S = 0.3
_RENEW_EVERY_S = 10.0
TEXT_CHARS = 20_000  # of each observation and reply of a play
REPLY_CHARS = 200_000
_FAILURE_CHARS = 2_000
_TURNS = 1_000  # as many as agent.max_turns allows


class _Over(Exception):
    """The session ends. ``state`` is None when somebody else has ended it already."""

    def __init__(self, state: str | None, why: str = "") -> None:
        super().__init__(why)
        self.state, self.why = state, why


def hold(*, trial_id: int) -> None:
    """Load the checkpoint of a session and answer in it until it ends. Does nothing when it waits for nobody."""
    taken = claim(Trial, trial_id)
    if taken is None:
        return
    trial, lease = taken
    if trial.state == Trial.State.WAITING:
        _Holder(trial, lease).run()
    release(Trial, trial.pk, lease)


class _Holder:
    def __init__(self, trial: Trial, lease: UUID) -> None:
        self.trial, self.lease = trial, lease
        self.begun = self.renewed = time.monotonic()
        self.asked_at = 0.0
        self.current: Exchange | None = None

    def run(self) -> None:
        """From the start of the process to the end of the session; whatever happens, nothing stays "thinking"."""
        try:
            self._store(state=Trial.State.LOADING, host=host_name())
            with TryChild(try_command(self.trial.run, self.trial.checkpoint)) as child:
                while True:
                    self._look()
                    for answer in child.answers(LOOK_EVERY_S):
                        self._take(answer)
                    self._ask_next(child)
        except _Over as end:
            self._close(end.state, end.why)
        except (ChildFailed, OSError) as error:
            self._close(Trial.State.FAILED, str(error))
        except BaseException:
            self._close(Trial.State.FAILED, "A fault of Spadework ended the session; the worker's log says more.")
            raise

    def _look(self) -> None:
        """Whether the session goes on: it is ours and open, and within its time."""
        now = time.monotonic()
        if now - self.renewed > _RENEW_EVERY_S:
            if not renew(Trial, self.trial.pk, self.lease):
                raise _Over(None)
            self.renewed = now
        row = (
            Trial.objects.filter(pk=self.trial.pk, lease=self.lease, state__in=OPEN)
            .values_list("state", "touched_at")
            .first()
        )
        if row is None:
            raise _Over(None)
        self.trial.state = row[0]
        if now - self.begun > settings.SPADEWORK_TRY_LIMIT_S:
            raise _Over(Trial.State.EXPIRED, f"A session lasts {settings.SPADEWORK_TRY_LIMIT_S // 60} minutes at most.")
        if self.current is None and self.trial.state == Trial.State.READY:
            idle = (timezone.now() - row[1]).total_seconds()
            if idle > settings.SPADEWORK_TRY_IDLE_S:
                raise _Over(
                    Trial.State.EXPIRED, f"Nobody asked anything for {settings.SPADEWORK_TRY_IDLE_S // 60} minutes."
                )
        waited_since = self.asked_at if self.current is not None else self.begun
        owes = self.current is not None or self.trial.state == Trial.State.LOADING
        if owes and now - waited_since > settings.SPADEWORK_TRY_ANSWER_S:
            raise _Over(
                Trial.State.FAILED, f"The model gave no answer within {settings.SPADEWORK_TRY_ANSWER_S // 60} minutes."
            )

    def _ask_next(self, child: TryChild) -> None:
        """Send the oldest request that waits, when the model owes nothing."""
        if self.current is not None or self.trial.state != Trial.State.READY:
            return
        waiting = Exchange.objects.filter(trial=self.trial, state=Exchange.State.WAITING).select_related("environment")
        exchange = waiting.order_by("id").first()
        if exchange is None or waiting.filter(pk=exchange.pk).update(state=Exchange.State.RUNNING) != 1:
            return
        self.current, self.asked_at = exchange, time.monotonic()
        child.send(_request(exchange))

    def _take(self, answer: dict[str, Any]) -> None:
        kind = answer.get("kind")
        if kind == "ready":
            self._store(state=Trial.State.READY, facts=storable(answer), touched_at=timezone.now())
            self.trial.state = Trial.State.READY
            return
        exchange = self.current
        if exchange is None or answer.get("id") != str(exchange.pk):
            raise ChildFailed(f"the model's process answered something that was not asked: {str(kind)[:40]}")
        if kind in ("opened", "observed"):
            self._update(exchange, observation=_cut(answer.get("observation"))[0])
        elif kind == "turn":
            exchange.turns = [*exchange.turns, _bounded(answer.get("turn"))][:_TURNS]
            self._update(exchange, turns=exchange.turns, observation="")
        elif kind == "reply":
            text, characters = _cut(answer.get("text"), REPLY_CHARS)
            self._finish(
                exchange, Exchange.State.DONE, answer={**storable(answer), "text": text, "characters": characters}
            )
        elif kind == "played":
            last, _ = _cut(answer.pop("final_observation", ""))
            self._finish(exchange, Exchange.State.DONE, answer=storable(answer), observation=last)
        elif kind == "refused":
            message = storable_text(str(answer.get("message")))[:_FAILURE_CHARS]
            self._finish(exchange, Exchange.State.REFUSED, failure=message)
        else:
            raise ChildFailed(f"the model's process said {str(kind)[:40]!r}, which this version does not know")

    def _finish(self, exchange: Exchange, state: str, **fields: Any) -> None:
        self._update(exchange, state=state, answered_at=timezone.now(), **fields)
        Trial.objects.filter(pk=self.trial.pk, lease=self.lease).update(touched_at=timezone.now())
        self.current = None

    def _update(self, exchange: Exchange, **fields: Any) -> None:
        if Exchange.objects.filter(pk=exchange.pk, state__in=OWED).update(**fields) != 1:
            raise _Over(None)

    def _store(self, **fields: Any) -> None:
        rows = Trial.objects.filter(pk=self.trial.pk, lease=self.lease, state__in=OPEN)
        if rows.update(**fields) != 1:
            raise _Over(None)

    def _close(self, state: str | None, why: str) -> None:
        """The end of the session in its row, and an end to everything that was still asked."""
        text = storable_text(why)[:_FAILURE_CHARS]
        with transaction.atomic():
            rows = Trial.objects.filter(pk=self.trial.pk, lease=self.lease, state__in=OPEN)
            if state is not None and rows.update(state=state, failure=text, ended_at=timezone.now()) == 1:
                end_exchanges(trial_id=self.trial.pk, why=text)


def _request(exchange: Exchange) -> dict[str, Any]:
    if exchange.kind == Exchange.Kind.CHAT:
        request: dict[str, Any] = {"do": "chat", "id": str(exchange.pk), "messages": messages_of(exchange=exchange)}
        limits = {"temperature": exchange.temperature, "max_new_tokens": exchange.reply_tokens}
        return request | {name: value for name, value in limits.items() if value is not None}
    environment = exchange.environment
    if environment is None:
        raise ChildFailed("the environment of the play has been removed")
    return {
        "do": "play", "id": str(exchange.pk), "environment": environment.key, "code": environment.code,
        "hint": environment.hint_text, "seed": exchange.seed, "arm": exchange.arm, "play": exchange.play,
    }  # fmt: skip


def _bounded(turn: Any) -> dict[str, Any]:
    """A turn as it is kept: its texts cut, with their full length beside them."""
    kept: dict[str, Any] = storable(turn) if isinstance(turn, dict) else {}
    for name in ("observation", "reply"):
        kept[name], kept[f"{name}_characters"] = _cut(kept.get(name))
    if isinstance(kept.get("action"), str):
        kept["action"] = kept["action"][:TEXT_CHARS]
    kept["info"] = {}
    return kept


def _cut(text: Any, limit: int = TEXT_CHARS) -> tuple[str, int]:
    """The beginning of a text that a model or a generated program wrote, and its length."""
    whole = storable_text(text) if isinstance(text, str) else ""
    return whole[:limit], len(whole)
