"""One hint per environment: asked for, tried again, checked for leaks (spec 5)."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from string import ascii_lowercase

from trainer.agent import boxed_content
from trainer.artifacts import write_hint
from trainer.events import HintWritten
from trainer.policy import Answer, Question
from trainer.seeds import episode_seed, stable_seed
from trainer.session import Session
from trainer.state import Environment, HintState

MAX_WORDS = 100
_SPECIFIC_CHARS = 3
_GAP_CHARS, _JOINED_CHARS = 6, 3
_FENCE = "```"
_LONGEST_BACKOFF_S = 30.0
_STOPPABLE_S = 1.0


@dataclass(frozen=True, slots=True)
class Wording:
    """What one reply came to: the hint, or why it is none."""

    text: str
    problem: str = ""


@dataclass
class _Progress:
    """An environment on its way to a hint."""

    environment: Environment
    tries: int = 0
    problem: str = ""
    text: str = ""
    reply_tokens: int = 0


def write_hints(
    session: Session, environments: Sequence[Environment], *, sleep: Callable[[float], None] = time.sleep
) -> None:
    """Give each environment its hint, or the state `none` or `leaky`; one event each, in slot order.

    Environments of a fixed pool keep the hint they were stored with, or have none: nothing of a pool is written during a run.
    """
    total = len(environments)
    with session.meter.running("hints", total=total):
        if session.state.pool is None:
            progress = [_Progress(environment) for environment in environments]
            _ask_until_answered(session, progress, sleep)
        else:
            progress = [_stored(environment) for environment in environments]
        states = _check_leaks(session, progress)
        for number, (one, state) in enumerate(zip(progress, states, strict=True), start=1):
            one.environment.hint_state = state
            one.environment.hint = one.text or None
            written = HintWritten(
                environment=one.environment.key,
                state=state,
                text=one.text or None,
                tries=one.tries,
                reason=one.problem,
                reply_tokens=one.reply_tokens,
            )
            session.log.emit(written)
            session.record.hints.append(written)
            if one.text:
                write_hint(session.run, one.environment.key, one.text)
            session.meter.advance("hints", number)
    session.meter.finish("hints")


def wording_of(answer: Answer) -> Wording:
    """The hint in a reply: thinking, fences, quotes and a JSON object with key `hint` around it are taken off."""
    if answer.error:
        return Wording("", answer.error)
    if answer.finish == "length":
        return Wording("", "the reply was cut at hint.max_tokens")
    text = answer.text.rsplit("</think>", 1)[-1].strip()
    text = _from_json(_unfenced(text)).strip().removeprefix("HINT:").strip().strip('"').strip()
    if not text:
        return Wording("", "the reply was empty")
    words = len(text.split())
    return Wording(text) if words <= MAX_WORDS else Wording("", f"the hint has {words} words, {MAX_WORDS} are allowed")


def leak_of(hint: str, solutions: Sequence[Sequence[str] | None]) -> str:
    """How the hint gives an answer away, "" when it does not. `solutions`: the winning actions of each played seed.

    A hint is one text for all seeds, so naming a word that some seed's answer happens to be is no leak. It leaks when it holds
    a whole winning sequence; the winning (last) action where that is the same for every seed; or, where answers are nearly all
    different, one of at least three characters.
    """
    known = [[_content(a) for a in actions] for actions in solutions if actions]
    for contents in dict.fromkeys(map(tuple, known)):  # often the same for several seeds
        sequence = [c for c in contents if c]
        if len(sequence) > 1 and holds_sequence(hint, sequence):
            return f"it holds the winning actions {', '.join(contents)}"
    answers = [contents[-1] for contents in known if contents[-1]]
    different = set(answers)
    for answer in sorted(different):
        telling = len(different) == 1 or (len(answer) >= _SPECIFIC_CHARS and len(different) * 2 > len(answers))
        if telling and re.search(rf"(?<!\w){re.escape(answer)}(?!\w)", hint, re.IGNORECASE):
            return f"it names the answer {answer!r}"
    return ""


def holds_sequence(hint: str, actions: Sequence[str]) -> bool:
    """Whether the actions stand in the hint one after the other, as whole words in any case.

    Between two of them are one to six characters that belong to no word; "then" or "and" with one to three more may follow. A set of
    places is a whole number with a bit for each, so that the time is bounded whatever the actions are, which a program chose.
    """
    if sum(map(len, actions)) + len(actions) - 1 > len(hint):
        return False
    no_word = _places(r"\W", hint)
    joints = [(_places(f"(?={word})", hint), len(word)) for word in ("then", "and")]
    starts: dict[str, int] = {}
    reached = (no_word << 1) | 1  # where an action may begin: at the start, or after what belongs to no word
    for number, action in enumerate(actions):
        if number:
            gaps = _after(reached, no_word, _GAP_CHARS)
            joined = 0
            for places, length in joints:
                joined |= (gaps & places) << length
            reached = gaps | _after(joined, no_word, _JOINED_CHARS)
        if action not in starts:
            starts[action] = _places(f"(?={re.escape(action)})", hint)
        reached = (reached & starts[action]) << len(action)
        if not reached:
            return False
    return bool(reached & (no_word | 1 << len(hint)))


def _places(pattern: str, text: str) -> int:
    """The bits of all places where the pattern matches."""
    bits = bytearray(len(text) // 8 + 1)
    for found in re.finditer(pattern, text, re.IGNORECASE):
        bits[found.start() // 8] |= 1 << found.start() % 8
    return int.from_bytes(bits, "little")


def _after(places: int, no_word: int, most: int) -> int:
    """Where one is after one to `most` characters that belong to no word."""
    reached = 0
    for _ in range(most):
        places = (places & no_word) << 1
        reached |= places
    return reached


def _stored(environment: Environment) -> _Progress:
    return _Progress(environment, text=environment.hint or "", problem="the pool holds no hint for it")


def _ask_until_answered(session: Session, progress: Sequence[_Progress], sleep: Callable[[float], None]) -> None:
    """Up to `hint.tries` rounds over the environments that have no hint; a failed call waits before the next round."""
    wait_s = session.config.hint.backoff_s
    for number in range(session.config.hint.tries):
        waiting = [one for one in progress if not one.text]
        if not waiting:
            return
        session.control.safe_point()
        if number and wait_s and any(one.problem.startswith("sampler:") for one in waiting):
            _wait(session, wait_s, sleep)
            wait_s = max(wait_s, min(2 * wait_s, _LONGEST_BACKOFF_S))
        _ask(session, waiting)


def _wait(session: Session, wait_s: float, sleep: Callable[[float], None]) -> None:
    """Wait in short pieces, so that a stop or a pause need not."""
    while wait_s > 0:
        sleep(min(wait_s, _STOPPABLE_S))
        wait_s -= _STOPPABLE_S
        session.control.safe_point()


def _ask(session: Session, waiting: Sequence[_Progress]) -> None:
    config = session.config
    questions = []
    for one in waiting:
        one.tries += 1
        seed = stable_seed(config.seed, "hint", one.environment.key, one.tries)
        messages = session.prompts.hint(code=one.environment.code)
        questions.append(Question(messages, config.hint.max_tokens, config.hint.temperature, seed))
    for one, answer in zip(waiting, session.policy.ask(questions), strict=True):
        wording = wording_of(answer)
        one.text, one.problem, one.reply_tokens = wording.text, wording.problem, len(answer.token_ids)
        session.tensors.add(
            f"{one.environment.key}/hint{one.tries}",
            "hint",
            prompt_ids=answer.prompt_ids,
            token_ids=answer.token_ids,
            logprobs=answer.logprobs,
        )


def _check_leaks(session: Session, progress: Sequence[_Progress]) -> list[HintState]:
    """Leaky hints are asked for once more (not those of a fixed pool), then kept and marked."""
    found = [one for one in progress if one.text]
    solutions = {one.environment.key: _solutions(session, one.environment) for one in found}
    leaky = [one for one in found if leak_of(one.text, solutions[one.environment.key])]
    if leaky and session.state.pool is None:
        before = {one.environment.key: one.text for one in leaky}
        _ask(session, leaky)
        for one in leaky:
            one.text = one.text or before[one.environment.key]
    states: list[HintState] = []
    for one in progress:
        leak = leak_of(one.text, solutions[one.environment.key]) if one.text else ""
        one.problem = leak or ("" if one.text else one.problem)
        states.append("leaky" if leak else "ok" if one.text else "none")
    return states


def _solutions(session: Session, environment: Environment) -> list[list[str] | None]:
    seeds = [
        episode_seed(session.config.seed, environment.key, 0, play)
        for play in range(session.config.schedule.hinted_plays)
    ]
    return session.pool.solutions(environment.key, environment.code, seeds, max_turns=session.config.agent.max_turns)


def _content(action: str) -> str:
    inner = boxed_content(action)
    return (action if inner is None else inner).strip()


def _unfenced(text: str) -> str:
    """What stands between the fences of a text that is one fenced block; else the text."""
    if len(text) < 2 * len(_FENCE) or not (text.startswith(_FENCE) and text.endswith(_FENCE)):
        return text
    return text[len(_FENCE) : -len(_FENCE)].lstrip(ascii_lowercase).strip()


def _from_json(text: str) -> str:
    if not text.startswith("{"):
        return text
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return str(value["hint"]) if isinstance(value, dict) and isinstance(value.get("hint"), str) else text
