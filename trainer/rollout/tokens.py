"""Chat text to token ids and back, turn by turn, never tokenising an earlier turn again.

Two promises. What the policy sampled stays an exact prefix of everything that follows: a reply is appended as the ids that were drawn,
an observation as the ids of the template text around it. And text is data: `<|im_end|>` inside an observation, a document or generated
code becomes ordinary characters, never the control token; only the chat template itself can place control tokens.

How: the template is rendered with marker words in place of all contents. What stands between the markers is template text, in which
control tokens are recognised; contents are joined to the plain template text around them and encoded by a copy of the tokenizer that
knows no control tokens. For harmless text this gives exactly the ids of `apply_chat_template`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from trainer.errors import UserError
from trainer.rollout.engine import Sampled

_MARKER = "Qzmarker{}zQ"
_MARKER_PATTERN = re.compile(r"Qzmarker(\d+)zQ")


@dataclass(frozen=True, slots=True)
class _Control:
    """A control token of the template."""

    token_id: int
    strip_left: bool
    strip_right: bool


class ChatFormat:
    """The chat template of one tokenizer: what a prompt, an end of turn and the step to the next turn look like in token ids.

    `end_of_turn` is the token that ends a reply; `stop_ids` is what a `SampleRequest` should stop at.
    """

    def __init__(self, tokenizer: Any, *, template_options: Mapping[str, Any] | None = None) -> None:
        """`template_options` go to the template, e.g. `{"enable_thinking": False}`.

        Raises `UserError` when the tokenizer has no chat template, no fast implementation, or a template that cannot be continued
        turn by turn.
        """
        if not getattr(tokenizer, "chat_template", None):
            raise UserError(
                f"{_name(tokenizer)}: the tokenizer has no chat template. Use an instruct model, or save one with the tokenizer."
            )
        if getattr(tokenizer, "backend_tokenizer", None) is None:
            raise UserError(f"{_name(tokenizer)}: a fast tokenizer (tokenizer.json) is needed.")
        self._tokenizer = tokenizer
        self._options = dict(template_options or {})
        self._controls = {
            str(token.content): _Control(token_id, token.lstrip, token.rstrip)
            for token_id, token in tokenizer.added_tokens_decoder.items()
        }
        names = sorted(self._controls, key=len, reverse=True)
        self._control_pattern = re.compile("|".join(re.escape(name) for name in names) or r"(?!)")
        self._plain = _without_control_tokens(tokenizer)
        self._check_text_is_data()
        self.end_of_turn, self._step = self._derive_step()
        self.stop_ids = (self.end_of_turn,)

    def prompt_ids(self, messages: Sequence[Mapping[str, str]]) -> tuple[int, ...]:
        """Ids of messages plus the header of the reply to come. Raises `UserError` when the template refuses the messages."""
        return self._encode(self._render(messages), [message["content"] for message in messages])

    def observation_ids(self, text: str) -> tuple[int, ...]:
        """What follows a reply's end-of-turn token: the template's separator, a user turn with `text`, the next reply's header."""
        return self._encode(self._step, [text])

    def plain_ids(self, text: str) -> tuple[int, ...]:
        """Ids of text as text: control tokens written in it become ordinary characters."""
        return tuple(self._plain.encode(_valid_unicode(text), add_special_tokens=False).ids)

    def reply_text(self, token_ids: Sequence[int]) -> str:
        """The text of a reply without its end-of-turn token; other control tokens the policy drew appear as their names."""
        ids = list(token_ids)
        if ids and ids[-1] == self.end_of_turn:
            ids.pop()
        return str(self._tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False))

    def _render(self, messages: Sequence[Mapping[str, str]], *, header: bool = True) -> str:
        """The template's text with marker i in place of message i's content."""
        import jinja2

        marked = [{**message, "content": _MARKER.format(i)} for i, message in enumerate(messages)]
        try:
            text = str(
                self._tokenizer.apply_chat_template(
                    marked, tokenize=False, add_generation_prompt=header, **self._options
                )
            )
        except (jinja2.TemplateError, ValueError, TypeError, ArithmeticError, LookupError, AttributeError) as error:
            roles = ", ".join(message["role"] for message in messages)
            raise UserError(
                f"{_name(self._tokenizer)}: the chat template refuses the roles ({roles}): {error}"
            ) from error
        seen = {int(number) for number in _MARKER_PATTERN.findall(text)}
        if seen != set(range(len(messages))):
            raise UserError(f"{_name(self._tokenizer)}: the chat template leaves out or changes the text of a message.")
        return text

    def _encode(self, marked: str, contents: Sequence[str]) -> tuple[int, ...]:
        """Ids of a rendered text: control tokens only from the template, everything between two of them encoded as one text."""
        ids: list[int] = []
        run = ""
        strip_left = False

        def flush(*, strip_right: bool) -> None:
            nonlocal run
            text = run.lstrip() if strip_left else run
            ids.extend(self.plain_ids(text.rstrip() if strip_right else text))
            run = ""

        for position, piece in enumerate(_MARKER_PATTERN.split(marked)):
            if position % 2:
                run += contents[int(piece)]
                continue
            end = 0
            for match in self._control_pattern.finditer(piece):
                run += piece[end : match.start()]
                control = self._controls[match.group()]
                flush(strip_right=control.strip_left)
                ids.append(control.token_id)
                strip_left, end = control.strip_right, match.end()
            run += piece[end:]
        flush(strip_right=False)
        return tuple(ids)

    def _derive_step(self) -> tuple[int, str]:
        """The end-of-turn id and the marked text from there to the next reply's header, from rendering two and three turns."""
        first: list[dict[str, str]] = [{"role": "user"}, {"role": "assistant"}, {"role": "user"}]
        steps = []
        for messages in (first, [*first, {"role": "assistant"}, {"role": "user"}]):
            text = self._render([{**message, "content": ""} for message in messages])
            steps.append(text.partition(_MARKER.format(len(messages) - 2))[2])
        match = self._control_pattern.search(steps[0])
        if match is None or steps[0][: match.start()].strip():
            raise UserError(
                f"{_name(self._tokenizer)}: the chat template does not end an assistant turn with a control token, so a reply's "
                "end cannot be told. Use a model whose template has one, such as <|im_end|>."
            )
        after = [
            step[match.end() :].replace(_MARKER.format(place), _MARKER.format(0))
            for step, place in zip(steps, (2, 4), strict=True)
        ]
        if after[0] != after[1] or after[0].count(_MARKER.format(0)) != 1:
            raise UserError(
                f"{_name(self._tokenizer)}: the chat template writes later turns differently, so turns cannot be appended."
            )
        return self._controls[match.group()].token_id, after[0]

    def _check_text_is_data(self) -> None:
        """No control token may come out of plain text, whatever the text says."""
        ids = {control.token_id for control in self._controls.values()}
        for name in self._controls:
            if ids.intersection(self.plain_ids(name)) and not name.isspace():
                raise UserError(
                    f"{_name(self._tokenizer)}: the text {name!r} always becomes a control token in this tokenizer, so text an "
                    "environment shows could end a turn. Use a byte-level BPE tokenizer."
                )


@dataclass(slots=True)
class Conversation:
    """One episode's tokens: the prompt, then replies (mask 1) and observations (mask 0) in order.

    `token_ids`, `mask` and `logprobs` always have the same length; `logprobs` is 0.0 where the mask is 0.
    """

    chat: ChatFormat
    prompt_ids: tuple[int, ...]
    token_ids: list[int] = field(default_factory=list)
    mask: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)

    @classmethod
    def start(cls, chat: ChatFormat, messages: Sequence[Mapping[str, str]]) -> Conversation:
        """Begin with messages; the policy speaks next. Raises `UserError` when the template refuses them."""
        return cls(chat, chat.prompt_ids(messages))

    def __len__(self) -> int:
        """Tokens of context used."""
        return len(self.prompt_ids) + len(self.token_ids)

    @property
    def context_ids(self) -> tuple[int, ...]:
        """Everything so far: the prompt of the next `SampleRequest`."""
        return (*self.prompt_ids, *self.token_ids)

    @property
    def turn_ended(self) -> bool:
        """The newest token is a sampled end-of-turn: an observation may follow. False after a reply that was cut off."""
        return bool(self.mask) and self.mask[-1] == 1 and self.token_ids[-1] == self.chat.end_of_turn

    def append_reply(self, reply: Sampled) -> str:
        """Append sampled ids exactly as they are; returns the reply's text. If `turn_ended` is False afterwards, the episode ends.

        Raises `ValueError` when no reply is due or ids and log-probs do not align.
        """
        if self.mask and self.mask[-1] == 1:
            raise ValueError("a reply follows a reply: append the observation first")
        if len(reply.token_ids) != len(reply.logprobs) or not reply.token_ids:
            raise ValueError(f"a reply of {len(reply.token_ids)} tokens with {len(reply.logprobs)} log-probs")
        self.token_ids += reply.token_ids
        self.mask += [1] * len(reply.token_ids)
        self.logprobs += reply.logprobs
        return self.chat.reply_text(reply.token_ids)

    def append_observation(self, text: str) -> None:
        """Append the template text and `text` of the next user turn, masked. Raises `ValueError` unless `turn_ended`."""
        if not self.turn_ended:
            raise ValueError("an observation can only follow a reply that ended its turn")
        ids = self.chat.observation_ids(text)
        self.token_ids += ids
        self.mask += [0] * len(ids)
        self.logprobs += [0.0] * len(ids)


def without_thinking(reply: str) -> str:
    """A reply as later turns of a thinking model show it: everything up to the last `</think>` is dropped."""
    return reply.rpartition("</think>")[2].lstrip("\n")


def _without_control_tokens(tokenizer: Any) -> Any:
    """A copy of the fast tokenizer that recognises no added tokens and adds none of its own."""
    from tokenizers import Tokenizer

    layout = json.loads(tokenizer.backend_tokenizer.to_str())
    layout |= {"added_tokens": [], "post_processor": None, "truncation": None, "padding": None}
    return Tokenizer.from_str(json.dumps(layout))


def _valid_unicode(text: str) -> str:
    """Lone surrogates, which no tokenizer can encode, become question marks."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _name(tokenizer: Any) -> str:
    return str(getattr(tokenizer, "name_or_path", "") or "the tokenizer")
