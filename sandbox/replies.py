"""Host-side verdict on every reply of a worker: exact types and bounds, whatever the worker claims to have checked."""

from __future__ import annotations

import math
from typing import Any

from sandbox.errors import FAULT_KINDS, EnvironmentFault
from sandbox.inside.checks import NOT_TEXT, is_clean
from sandbox.limits import Limits
from sandbox.protocol import ProtocolError
from sandbox.results import EpisodeHandle, Opened, Stepped

_STAGES = frozenset({"parse", "load", "reset", "step", "end", "solution", "measure"})
_MEASURES = {"lines", "state_variables"}


class BadReply(Exception):
    """A reply that an honest worker cannot have sent."""


def _text(value: Any, cap_chars: int) -> str:
    if type(value) is not str or len(value) > cap_chars:
        raise BadReply("a text is missing or too long")
    return value


def _clean(value: Any, cap_chars: int) -> str:
    """Text a person or a log may see: control characters and the like become replacement characters."""
    return NOT_TEXT.sub("\ufffd", _text(value, cap_chars))


class Texts:
    """The observations behind the JSON of one reply, taken in the order of its answers."""

    __slots__ = ("_at", "_text")

    def __init__(self, encoded: bytes) -> None:
        """Look at all of them at once; raises `ProtocolError` for what an honest worker does not let pass."""
        try:
            self._text = encoded.decode("utf-8")
        except UnicodeDecodeError as error:
            raise ProtocolError("the observations are not UTF-8") from error
        if not is_clean(self._text):
            raise ProtocolError("the observations hold control characters")
        self._at = 0

    def take(self, chars: Any, limits: Limits) -> str:
        """The next `chars` characters; raises `BadReply` unless they are there and are an observation."""
        begins = self._at
        if type(chars) is not int or not 0 < chars <= limits.observation_chars or begins + chars > len(self._text):
            raise BadReply("an observation is missing or too long")
        self._at = begins + chars
        text = self._text[begins : self._at]
        if text.isspace():
            raise BadReply("an observation is empty")
        return text


def _info(value: Any, limits: Limits) -> dict[str, float]:
    if type(value) is not dict or len(value) > limits.info_entries:
        raise BadReply("info is not a short dictionary")
    for key, number in value.items():
        if len(key) > 64 or not is_clean(key) or type(number) is not float or not math.isfinite(number):
            raise BadReply("info holds something that is not a finite number under a clean name")
    return value


def _printed(reply: list[Any], place: int, limits: Limits) -> str:
    return _clean(reply[place], limits.stdout_bytes) if len(reply) > place else ""


def fault_of(reply: Any, limits: Limits) -> EnvironmentFault | None:
    """The fault a reply reports, or None when it reports success; raises `BadReply`."""
    if type(reply) is not list or not reply:
        raise BadReply("the reply is not a list")
    if reply[0] == "ok":
        return None
    if reply[0] != "fault" or len(reply) != 7:
        raise BadReply("the reply has the wrong shape")
    _, kind, stage, message, line, trace, printed = reply
    # A list or dictionary in place of the stage cannot even be looked up.
    if kind not in FAULT_KINDS or type(stage) is not str or stage not in _STAGES:
        raise BadReply("the fault has an unknown kind or stage")
    if line is not None and (type(line) is not int or not 0 <= line < 10**9):
        raise BadReply("the line is not a number")
    return EnvironmentFault(
        kind,
        stage,
        _clean(message, 2_000),
        line,
        _clean(trace, limits.traceback_chars),
        _clean(printed, limits.stdout_bytes),
    )


def opened_of(reply: list[Any], texts: Texts, episode: EpisodeHandle, limits: Limits) -> Opened:
    """A successful reset; raises `BadReply`."""
    if not 3 <= len(reply) <= 4:
        raise BadReply("the reply to a reset has the wrong shape")
    return Opened(episode, texts.take(reply[1], limits), _info(reply[2], limits), _printed(reply, 3, limits))


def stepped_of(reply: list[Any], texts: Texts, limits: Limits) -> Stepped:
    """A successful step; raises `BadReply`."""
    printed = ""
    if len(reply) == 6:
        _, chars, reward, terminated, truncated, info = reply
    elif len(reply) == 7:
        _, chars, reward, terminated, truncated, info, printed = reply
        printed = _clean(printed, limits.stdout_bytes)
    else:
        raise BadReply("the reply to a step has the wrong shape")
    # A comparison with NaN is false, so this refuses it too.
    if type(reward) is not float or not -limits.reward_abs <= reward <= limits.reward_abs:
        raise BadReply("the reward is not a finite number within range")
    if type(terminated) is not bool or type(truncated) is not bool:
        raise BadReply("a flag is not a boolean")
    return Stepped(texts.take(chars, limits), reward, terminated, truncated, _info(info, limits), printed)


def solution_of(reply: list[Any], limits: Limits) -> list[str] | None:
    """The actions of a solution, or None; raises `BadReply`."""
    if not 2 <= len(reply) <= 3:
        raise BadReply("the reply to a solution has the wrong shape")
    actions = reply[1]
    if actions is None:
        return None
    if type(actions) is not list or not 0 < len(actions) <= limits.solution_actions:
        raise BadReply("the solution is not a list of actions")
    if not all(type(action) is str and len(action) <= limits.action_chars and is_clean(action) for action in actions):
        raise BadReply("an action of the solution is too long, or not clean text")
    return actions


def measures_of(reply: list[Any], limits: Limits) -> dict[str, float]:
    """The source measures; raises `BadReply`."""
    if not 2 <= len(reply) <= 3:
        raise BadReply("the reply to measure has the wrong shape")
    measures = _info(reply[1], limits)
    # Under any other name it would stand beside what the gates measured.
    if set(measures) != _MEASURES:
        raise BadReply("the measures have the wrong names")
    return measures


def class_name_of(reply: list[Any]) -> str:
    """The class name of a loaded program; raises `BadReply`."""
    if not 2 <= len(reply) <= 3 or type(reply[1]) is not str or not reply[1].isidentifier():
        raise BadReply("the reply to a load has the wrong shape")
    return _text(reply[1], 200)
