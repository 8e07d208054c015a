"""A person's play in the form of a transcript, so that it stands beside the agent's play of the same seed."""

from __future__ import annotations

from webapp.environments.models import PlaySession
from webapp.episodes.selectors import PREVIEW_CHARACTERS, Text, TurnView


def turns_of(session: PlaySession) -> list[TurnView]:
    """One turn per action: what the person saw, did, and got. A last observation nobody answered is not a turn."""
    turns = []
    for number, action in enumerate(session.actions[: len(session.replies)]):
        seen = str(session.replies[number].get("observation") or "")
        answer = session.replies[number + 1] if number + 1 < len(session.replies) else {}
        turns.append(
            TurnView(
                number=number, observation=_text(seen), hint="", reply=_text(action), action=action, reward=answer.get("reward"),
                terminated=bool(answer.get("terminated")), truncated=bool(answer.get("truncated")), observation_tokens=0, reply_tokens=0,
                logprob_mean=None,
            )
        )  # fmt: skip
    return turns


def _text(text: str) -> Text:
    return Text(shown=text[:PREVIEW_CHARACTERS], characters=len(text))
