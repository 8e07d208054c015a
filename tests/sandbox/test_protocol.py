"""Both ends of the wire refuse what is not strict JSON, and never do worse than their typed errors."""

from __future__ import annotations

import asyncio
import contextlib
import math
import mmap
import os
import select
import socket
import struct
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sandbox import EnvironmentFault, HostError, Limits, Opened, Stepped
from sandbox.protocol import ProtocolError, body_length, decode_body, encode_frame, split_body
from sandbox.replies import BadReply, Texts, fault_of, measures_of, opened_of, solution_of, stepped_of
from sandbox.results import EpisodeHandle
from sandbox.worker_link import WorkerLink, WorkerLost

LIMITS = Limits(step_soft_s=0.02, step_hard_s=0.05, close_s=0.5)
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**17), 10**17) | st.floats(allow_nan=False, allow_infinity=False) | st.text(
        st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner, max_size=4),
    max_leaves=12,
)  # fmt: skip


@given(PLAIN)
def test_what_is_written_is_read_back(message: Any) -> None:
    frame = encode_frame(message)
    assert body_length(frame, 10**6) == len(frame) - 4
    assert decode_body(frame[4:]) == message


@pytest.mark.parametrize(
    "body",
    [b"NaN", b"[Infinity]", b"-Infinity", b"1e999", b"[-1e999]", b"9" * 5000, b"[" * 100_000, b'"\xff"', b'"\\ud800"',
     b'{"\\udfff":1}', b"", b"{", b"[1,]", b"nul", b"'a'", b'"\n"', b"[1] 2"],
)  # fmt: skip
def test_what_is_not_strict_json_is_refused(body: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_body(body)


@pytest.mark.parametrize("message", [math.nan, [math.inf], {"a": {1, 2}}, b"bytes", "\ud800", object()])
def test_what_has_no_strict_form_is_not_written(message: Any) -> None:
    with pytest.raises(ProtocolError):
        encode_frame(message)


def test_a_length_above_the_cap_is_refused_before_reading() -> None:
    with pytest.raises(ProtocolError, match="4294967295 bytes exceeds"):
        body_length(b"\xff\xff\xff\xff", 10**6)


@given(st.binary(max_size=200))
def test_any_bytes_decode_or_raise_the_typed_error(body: bytes) -> None:
    with contextlib.suppress(ProtocolError):
        decode_body(body)


NUMBERS = st.dictionaries(st.text(), st.floats())
STEPPED = st.tuples(st.just("ok"), st.integers(-3, 20), st.floats(), st.booleans(), st.booleans(), NUMBERS).map(list)
WORD = st.sampled_from(["ok", "fault", "OK", 0, 1])
REPLY = st.lists(PLAIN, max_size=8) | PLAIN | st.tuples(WORD, *(6 * [PLAIN])).map(list) | STEPPED


def texts_or_none(encoded: bytes) -> Texts:
    try:
        return Texts(encoded)
    except ProtocolError:
        return Texts(b"")


@given(REPLY, st.binary(max_size=20) | st.text(max_size=20).map(lambda text: text.encode("utf-8", "surrogatepass")))
def test_any_reply_is_judged_within_bounds_or_refused(reply: Any, encoded: bytes) -> None:
    texts = texts_or_none(encoded)
    try:
        fault = fault_of(reply, LIMITS)
        if fault is not None:
            assert isinstance(fault, EnvironmentFault)
            return
        results: list[Any] = []
        for judge in (
            lambda: stepped_of(reply, texts, LIMITS),
            lambda: opened_of(reply, texts, EpisodeHandle(1, 1), LIMITS),
            lambda: solution_of(reply, LIMITS),
            lambda: measures_of(reply, LIMITS),
        ):
            try:
                results.append(judge())
            except BadReply:
                continue
    except BadReply:
        return
    for result in results:
        if isinstance(result, Stepped):
            assert math.isfinite(result.reward)
            assert abs(result.reward) <= 10
        if isinstance(result, Opened | Stepped):
            assert result.observation
            assert result.observation.encode()
            assert all(math.isfinite(number) for number in result.info.values())


TAKEN_TEXTS = ["plain", "two\nlines\twith a tab", "naïve", "\U0001f600 wide", '{}[],"\\ul"']


def test_observations_travel_behind_the_json_as_they_are() -> None:
    frame = encode_frame([1, [["ok", len(text)] for text in TAKEN_TEXTS]], TAKEN_TEXTS)
    line, encoded = split_body(frame[4:])
    texts = Texts(encoded)
    assert [texts.take(answer[1], LIMITS) for answer in decode_body(line)[1]] == TAKEN_TEXTS


@pytest.mark.parametrize(
    "encoded", [b"\xff", b"\xed\xa0\x80", b"bell \x07", b"a" * 100 + b"\x1b[2J", "\x85".encode(), b"\x00"]
)
def test_observations_that_are_no_clean_text_are_refused(encoded: bytes) -> None:
    with pytest.raises(ProtocolError, match="observations"):
        Texts(encoded)


@pytest.mark.parametrize("chars", [0, -1, 4, True, 1.0, "abc", None, [], 10**9])
def test_an_observation_that_is_not_there_is_refused(chars: Any) -> None:
    with pytest.raises(BadReply, match="missing or too long"):
        Texts(b"abc").take(chars, LIMITS)


def test_an_observation_longer_than_the_limit_is_refused() -> None:
    chars = LIMITS.observation_chars + 1
    with pytest.raises(BadReply, match="missing or too long"):
        Texts(b"x" * chars).take(chars, LIMITS)


class _FakeZygote:
    """Stands for the zygote of a worker that is only a socket: a kill closes the worker's end."""

    tier = "sealed"
    alive = True
    group = None
    in_flight = 0

    def __init__(self, theirs: socket.socket) -> None:
        self.theirs = theirs
        self.status: int | None = None

    def kill(self, _pid: int) -> None:
        self.theirs.close()
        self.status = -9

    def destroy(self) -> None:
        self.kill(0)

    async def exit_status(self, _pid: int, _wait_s: float) -> int | None:
        return self.status


async def _answer_with(data: bytes, then_close: bool) -> Any:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    zygote = _FakeZygote(theirs)
    link = WorkerLink(zygote, 1, ours, mmap.mmap(-1, mmap.PAGESIZE), LIMITS)  # type: ignore[arg-type]
    call = asyncio.ensure_future(link.call([["step", 1, "x"]], 0.05))
    await asyncio.sleep(0)
    theirs.send(data)
    if then_close:
        theirs.close()
    try:
        return await call
    finally:
        await link.close()


@given(
    st.binary(max_size=64) | PLAIN.map(encode_frame) | st.lists(PLAIN, max_size=2).map(lambda r: encode_frame([1, r])),
    st.booleans(),
)
@settings(suppress_health_check=[HealthCheck.too_slow])
def test_any_bytes_from_a_worker_end_in_an_answer_or_a_typed_loss(data: bytes, then_close: bool) -> None:
    try:
        reply = asyncio.run(_answer_with(data, then_close))
    except (WorkerLost, HostError):
        return
    assert isinstance(reply.answers, list)
    assert len(reply.answers) == 1


@given(st.lists(st.binary(min_size=1, max_size=40), max_size=6))
def test_any_bytes_to_a_worker_end_it_or_get_a_frame(chunks: list[bytes]) -> None:
    """The worker's own reader, in a thread-free way: it reads from a pipe that ends."""
    from sandbox.inside.worker import Worker
    from sandbox.patience import Patience

    read, write = os.pipe()
    os.write(write, b"".join(chunks)[:4000])
    os.close(write)
    worker = Worker.__new__(Worker)
    worker._descriptor, worker._buffer, worker._patience = read, bytearray(), Patience()
    worker._poll = select.poll()
    worker._poll.register(read, select.POLLIN)
    worker._settings = type("Bounds", (), {"frame_bytes": 10_000})()
    try:
        while worker.receive() is not None:
            pass
    except ProtocolError:
        pass
    finally:
        os.close(read)


def test_the_progress_page_is_read_as_three_numbers() -> None:
    page = mmap.mmap(-1, mmap.PAGESIZE)
    struct.pack_into("<III", page, 0, 7, 3, 4)
    link = WorkerLink.__new__(WorkerLink)
    link._page = page
    assert link.progress() == (7, 3, 4)
