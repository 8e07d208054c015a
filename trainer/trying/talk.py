"""The loop of `python -m trainer try`: read a request, answer it, until the input or the talk ends.

A line that is no JSON object is a message to the model, for people at a terminal; the conversation goes on until an empty line.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, TypeVar

from trainer.address_space import is_out_of_memory, limit_memory, ran_short
from trainer.errors import LimitError, TrainerError, UserError
from trainer.rollout.play import Episode
from trainer.trying.protocol import MESSAGES, Chat, ChatMessage, End, Play, answer_line, id_of, read_request
from trainer.trying.table import Tried, open_checkpoint, read_programs

LINE_BYTES = 8 * 1024**2
"""The longest request; what is longer is refused and skipped."""

_HELP = """\
Write a message and press Enter; an empty line begins a new conversation, Ctrl+D ends. Or write requests as JSON, such as
  {"do": "play", "environment": "r0000-s00", "seed": 7}
"""

Send = Callable[[str], None]
_T = TypeVar("_T")


def try_checkpoint(
    directory: Path, *, checkpoint: str, pool: str, device: str, threads: int, memory_bytes: int, nice: int
) -> int:
    """Open the checkpoint and answer what comes on standard input; returns the exit code. Raises `TrainerError` before `ready`.

    With `pool` ("" for none) its programs are played instead of the run's.
    """
    if memory_bytes and device != "cpu":  # CUDA reserves address space by the terabyte
        raise UserError("--memory-bytes bounds the main memory, so it goes with --device cpu")
    requests, send = _own_the_terminal()
    os.nice(nice)
    if memory_bytes:
        limit_memory(memory_bytes)
    try:
        programs = read_programs(pool) if pool else None
        tried = open_checkpoint(directory, checkpoint=checkpoint, device=device, threads=threads)
    except TrainerError:
        raise
    except Exception as error:
        if not ran_short(error, memory_bytes):
            raise
        raise LimitError(
            f"checkpoint {checkpoint} does not fit the memory it may use; allow more (--memory-bytes, on the pages "
            "SPADEWORK_TRY_MEMORY_MB) or try a smaller model"
        ) from error
    tried.programs = programs
    try:
        send(answer_line("ready", "", **tried.facts()))
        if requests.isatty():
            print(_HELP, file=sys.stderr, end="", flush=True)  # noqa: T201 - for the person at the terminal
        talk(tried, _lines(requests), send)
    except BrokenPipeError:  # whoever asked is gone
        return 0
    finally:
        tried.close()
    return 0


def talk(tried: Tried, lines: Iterator[str | None], send: Send) -> None:
    """Answer each line; None stands for one that was too long."""
    said: list[ChatMessage] = []
    for line in lines:
        if line is None:
            send(answer_line("refused", "", owner="user", message=f"a line has at most {LINE_BYTES} bytes"))
            continue
        if not line.strip():
            said.clear()
            continue
        if line.lstrip().startswith("{"):
            if not _answer(tried, line, send):
                return
            continue
        said.append(ChatMessage(role="user", content=line.strip()))
        reply = _tried(lambda: tried.reply(Chat(do="chat", messages=tuple(said[-MESSAGES + 1 :]))), "", send)
        if reply is None:
            said.pop()
        else:
            said.append(ChatMessage(role="assistant", content=str(reply["text"])))
            send(answer_line("reply", "", **reply))


def _answer(tried: Tried, line: str, send: Send) -> bool:
    """Do one JSON request; False when it asks to end."""
    try:
        request = read_request(line)
    except UserError as error:
        send(answer_line("refused", id_of(line), owner="user", message=str(error)))
        return True
    if isinstance(request, Chat):
        reply = _tried(lambda: tried.reply(request), request.id, send)
        if reply is not None:
            send(answer_line("reply", request.id, **reply))
    elif isinstance(request, Play):
        _tried(lambda: _play(tried, request, send), request.id, send)
    return not isinstance(request, End)


def _play(tried: Tried, request: Play, send: Send) -> bool:
    """Play, telling each turn when the environment has answered it."""

    def watch(episode: Episode) -> None:
        number = len(episode.turns)
        if number:
            turn = episode.turns[-1].model_dump(mode="json")
            send(answer_line("turn", request.id, number=number - 1, turn=turn))
        elif episode.dialogue is not None:
            send(
                answer_line("opened", request.id, observation=episode.observation, prompt_tokens=episode.prompt_tokens)
            )
        if episode.status is None and number:
            send(answer_line("observed", request.id, number=number, observation=episode.observation))

    played, tier = tried.play(request, watch)
    send(
        answer_line(
            "played",
            request.id,
            sandbox_tier=tier,
            **played.model_dump(mode="json", exclude={"turns", "trained_tokens"}),
        )
    )
    return True


def _tried(work: Callable[[], _T], request_id: str, send: Send) -> _T | None:
    """What the work returns; None when it was refused, which is told. Bugs go through."""
    try:
        return work()
    except TrainerError as error:
        send(answer_line("refused", request_id, owner=error.owner, message=str(error)))
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        message = "the memory does not suffice for this; shorten the conversation or ask for fewer tokens"
        send(answer_line("refused", request_id, owner=LimitError.owner, message=message))
    return None


def _own_the_terminal() -> tuple[IO[bytes], Send]:
    """Standard input, and a way to write to standard output that nobody else has: what libraries print goes to standard error."""
    output = os.fdopen(os.dup(1), "w", encoding="ascii")
    os.dup2(2, 1)

    def send(line: str) -> None:
        output.write(line)
        output.flush()

    return sys.stdin.buffer, send


def _lines(source: IO[bytes]) -> Iterator[str | None]:
    """Lines without their end; None for one above the limit, of which nothing more is kept."""
    while line := source.readline(LINE_BYTES + 1):
        if len(line) > LINE_BYTES and not line.endswith(b"\n"):
            while line and not line.endswith(b"\n"):
                line = source.readline(LINE_BYTES)
            yield None
            continue
        yield line.decode("utf-8", "replace").rstrip("\r\n")
