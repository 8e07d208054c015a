"""A person's play, driven by whichever worker is told of it: rebuilt by replay where needed, then one step further.

A worker keeps the episodes it played last, so that the next action costs one step. A worker that does not have the episode
(another process, a restart) rebuilds it from seed and actions and compares every reply with the stored one.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db import transaction

from sandbox import EnvironmentFault, EnvironmentHandle, EpisodeHandle, Opened, Sandbox, Stepped
from sandbox.players import options_of
from webapp.environments.jobs import claim, release, renew
from webapp.environments.models import PlaySession
from webapp.environments.sandboxing.bench import BENCH, BenchUnavailable, Demands, fault_fields
from webapp.runs import journal
from webapp.runs.configuration import parse_config
from webapp.runs.errors import InvalidConfig
from webapp.runs.storable import storable, storable_text

KEPT_EPISODES = 4
OPTIONS_SHOWN = 12
_COMPARED = ("observation", "reward", "terminated", "truncated")


@dataclass
class Live:
    """An episode this process holds; ``answered`` replies have been given in it."""

    generation: int
    handle: EnvironmentHandle
    episode: EpisodeHandle
    answered: int


class _LeaseLost(Exception):
    """Another worker took over: nothing may be stored."""


_kept: OrderedDict[int, Live] = OrderedDict()


def drive(*, session_id: int) -> None:
    """Answer what the session waits for. Does nothing when it waits for nothing or somebody else is at it."""
    taken = claim(PlaySession, session_id)
    if taken is None:
        return
    session, lease = taken
    try:
        if session.is_waiting:
            _answer(session, lease)
    except _LeaseLost:
        return
    except (BenchUnavailable, InvalidConfig) as error:
        _store(session, lease, failure=storable_text(str(error)))
    finally:
        release(PlaySession, session.pk, lease)


def _answer(session: PlaySession, lease: UUID) -> None:
    demands = Demands.of(parse_config(session.environment.run.config))
    replies: list[dict[str, Any]] = list(session.replies)

    def alive() -> None:
        if not renew(PlaySession, session.pk, lease):
            raise _LeaseLost

    with BENCH.borrow(demands) as sandbox:
        try:
            _play(sandbox, session, replies, alive)
        except EnvironmentFault as fault:
            _forget(session.pk)
            status = "env_timeout" if fault.kind == "timeout" else "env_error"
            ending = {"state": PlaySession.State.OVER, "status": status, "fault": storable(fault_fields(fault))}
        else:
            ending = _ending(session, replies)
            if ending:
                _forget(session.pk)
        tier = sandbox.tier
    _store(session, lease, replies=storable(replies), failure="", sandbox_tier=tier, **ending)


def _play(sandbox: Sandbox, session: PlaySession, replies: list[dict[str, Any]], alive: Callable[[], None]) -> None:
    """Bring the episode to where ``replies`` end, then take the remaining actions; appends to ``replies``."""
    live = _kept.pop(session.pk, None)
    if live is not None and (live.generation != BENCH.generation or live.answered != len(replies)):
        if live.generation == BENCH.generation:
            live.handle.close()
        live = None
    if live is None:
        live = _open(sandbox, session, replies, alive)
    _kept[session.pk] = live
    while len(_kept) > KEPT_EPISODES:
        _, oldest = _kept.popitem(last=False)
        if oldest.generation == BENCH.generation:
            oldest.handle.close()
    while live.answered <= len(session.actions):
        alive()
        (answer,) = sandbox.step_many([(live.episode, session.actions[live.answered - 1])])
        if isinstance(answer, EnvironmentFault):
            raise answer
        _take(replies, live.answered, _reply(answer))
        live.answered += 1
        if answer.terminated or answer.truncated:
            return


def _open(sandbox: Sandbox, session: PlaySession, replies: list[dict[str, Any]], alive: Callable[[], None]) -> Live:
    alive()
    code = session.variant.code if session.variant is not None else session.environment.code
    handle = sandbox.load(code)
    try:
        alive()
        (opened,) = sandbox.reset_many([(handle, session.seed, session.max_turns)])
        if isinstance(opened, EnvironmentFault):
            raise opened
        _take(replies, 0, _reply(opened))
    except (EnvironmentFault, _LeaseLost):
        handle.close()
        raise
    return Live(BENCH.generation, handle, opened.episode, answered=1)


def _reply(answer: Opened | Stepped) -> dict[str, Any]:
    reply: dict[str, Any] = {
        "observation": answer.observation, "stdout": answer.stdout, "options": options_of(answer.observation)[:OPTIONS_SHOWN],
    }  # fmt: skip
    if isinstance(answer, Stepped):
        reply |= {"reward": answer.reward, "terminated": answer.terminated, "truncated": answer.truncated}
    return reply


def _take(replies: list[dict[str, Any]], index: int, reply: dict[str, Any]) -> None:
    """Add a new reply, or compare a replayed one with the stored one. Raises EnvironmentFault when they differ."""
    if index == len(replies):
        replies.append(reply)
        return
    stored, again = replies[index], storable(reply)
    if any(stored.get(name) != again.get(name) for name in _COMPARED):
        raise EnvironmentFault(
            "nondeterministic",
            "step" if index else "reset",
            f"played again from the seed, reply {index} is another one",
        )


def _ending(session: PlaySession, replies: list[dict[str, Any]]) -> dict[str, Any]:
    """How the play ended by spec 01, section 6; {} while it goes on."""
    last = replies[-1]
    if last.get("terminated"):
        reward = min(1.0, max(-1.0, float(last["reward"])))
        return {"state": PlaySession.State.OVER, "status": "won" if reward > 0 else "lost", "reward": reward}
    if last.get("truncated"):
        return {"state": PlaySession.State.OVER, "status": "truncated_by_env", "reward": 0.0}
    if len(replies) - 1 >= session.max_turns:
        return {"state": PlaySession.State.OVER, "status": "turn_limit", "reward": 0.0}
    return {}


def _forget(session_id: int) -> None:
    live = _kept.pop(session_id, None)
    if live is not None and live.generation == BENCH.generation:
        live.handle.close()


def _store(session: PlaySession, lease: UUID, **fields: Any) -> None:
    """Write what was found, if the lease still holds and nobody closed the session meanwhile, and wake who looks at the run."""
    with transaction.atomic():
        rows = PlaySession.objects.filter(pk=session.pk, lease=lease, state=PlaySession.State.OPEN)
        if rows.update(**fields) != 1:
            return
        payload = {"session": session.pk, "replies": len(fields.get("replies", session.replies))}
        journal.append(run_id=session.environment.run_id, kind="play", payload=payload)
