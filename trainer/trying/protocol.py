"""What `python -m trainer try` reads and writes, one JSON object a line. Imports no torch.

In:   {"do": "chat", "messages": [{"role": "user", "content": "Hello"}], "max_new_tokens": 200}
      {"do": "play", "environment": "r0004-s03", "seed": 7, "arm": "hinted"}
      {"do": "end"}
Out:  ready      once, when the weights are loaded: what the model is and what its limits are
      reply      to a chat
      opened, turn …, played    while an environment is played
      refused    to a request that cannot be done; the next one is read
Every answer carries the `id` of its request.
"""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from trainer.errors import UserError

MESSAGES = 200
"""Messages of a conversation at most."""

_Id = Annotated[str, Field(max_length=64)]
_Seed = Annotated[int, Field(ge=0, lt=2**63)]


class _Request(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    id: _Id = ""


class ChatMessage(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    role: Literal["system", "user", "assistant"]
    content: str


class Chat(_Request):
    """The reply to a whole conversation. Without `temperature` the agent's of the run, without `seed` another draw each time."""

    do: Literal["chat"]
    messages: tuple[ChatMessage, ...] = Field(min_length=1, max_length=MESSAGES)
    temperature: float | None = Field(None, gt=0, le=5)
    max_new_tokens: int | None = Field(None, ge=1)
    seed: _Seed | None = None

    @model_validator(mode="after")
    def _in_turns(self) -> Self:
        roles = [m.role for m in self.messages]
        spoken = roles[1:] if roles[0] == "system" else roles
        if not spoken or spoken != ["user", "assistant"] * (len(spoken) // 2) + ["user"]:
            raise ValueError(
                "after an optional system message, user and assistant take turns, and the last message is the user's"
            )
        return self


class Play(_Request):
    """One episode. Without `code` the program and its hint are those of this id in the pool (`--pool`), else in the run's environments/.

    `play` is the number of the draw: the same number with the same seed draws the same replies.
    """

    do: Literal["play"]
    environment: str = Field(min_length=1, max_length=200)
    seed: _Seed
    arm: Literal["unhinted", "hinted"] = "unhinted"
    play: int = Field(0, ge=0, lt=10**6)
    code: str | None = None
    hint: str | None = None


class End(_Request):
    do: Literal["end"]


Request = Chat | Play | End


class _Line(BaseModel):
    request: Request = Field(discriminator="do")


def read_request(line: str) -> Request:
    """The request of one line. Raises `UserError` that says what is wrong with it."""
    try:
        return _Line.model_validate({"request": json.loads(line)}).request
    except ValidationError as error:
        found = error.errors()[:3]
        raise UserError("; ".join(f"{'.'.join(str(p) for p in e['loc'])}: {e['msg']}" for e in found)) from error
    except (ValueError, RecursionError) as error:
        raise UserError(f"the line is not JSON: {error}") from error


def id_of(line: str) -> str:
    """The `id` of a line that was refused, "" when it has none that can be read."""
    try:
        value: Any = json.loads(line).get("id", "")
    except (ValueError, RecursionError, AttributeError):
        return ""
    return value[:64] if isinstance(value, str) else ""


def answer_line(kind: str, request_id: str, /, **fields: Any) -> str:
    """One answer as a line, ASCII only: what a model wrote can neither break the line nor move a terminal's cursor."""
    return json.dumps({"kind": kind, "id": request_id, **fields}, ensure_ascii=True, allow_nan=False) + "\n"
