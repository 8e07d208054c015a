"""Frames between host and worker: four bytes of length, then one line of strict JSON. Both ends use this file.

A reply's observations follow the line as they are, one behind the other, and the JSON has their lengths: escaping them for
JSON and reading that back would take longer than most steps.

Strict means: no NaN or infinity in any spelling, no lone surrogates, no deep nesting, no huge integers. The length is
checked before anything is allocated for it. Nothing is ever unpickled or unmarshalled on the host.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any, NoReturn

HEADER_BYTES = 4
_LONGEST_INTEGER_DIGITS = 18


class ProtocolError(Exception):
    """The peer sent something that is not a valid frame."""


def _refuse_constant(text: str) -> NoReturn:
    raise ProtocolError(f"the number {text} is not allowed")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ProtocolError(f"the number {text[:20]} does not fit a double")
    return value


def _short_integer(text: str) -> int:
    if len(text) > _LONGEST_INTEGER_DIGITS + 1:
        raise ProtocolError(f"an integer of {len(text)} digits is not allowed")
    return int(text)


_decoder = json.JSONDecoder(parse_constant=_refuse_constant, parse_float=_finite, parse_int=_short_integer)
_encoder = json.JSONEncoder(ensure_ascii=False, allow_nan=False, check_circular=False, separators=(",", ":"))


def encode_frame(message: object, texts: Sequence[str] = ()) -> bytes:
    """Header and body of one message, `texts` behind it; raises `ProtocolError` when it has no strict JSON form."""
    try:
        body = _encoder.encode(message).encode("utf-8")
        if texts:
            body += b"\n" + "".join(texts).encode("utf-8")
    except (ValueError, TypeError, RecursionError) as error:
        raise ProtocolError(f"cannot encode: {type(error).__name__}: {error}") from error
    return len(body).to_bytes(HEADER_BYTES, "big") + body


def body_length(header: bytes | bytearray | memoryview, cap_bytes: int) -> int:
    """Length announced by a header; raises `ProtocolError` above `cap_bytes`, before anything is allocated."""
    length = int.from_bytes(header[:HEADER_BYTES], "big")
    if length > cap_bytes:
        raise ProtocolError(f"a frame of {length} bytes exceeds the cap of {cap_bytes}")
    return length


def split_body(body: bytes) -> tuple[bytes, bytes]:
    """The JSON of a frame's body, and the texts behind it."""
    line, _, texts = body.partition(b"\n")
    return line, texts


def decode_body(body: bytes) -> Any:
    """The message in the JSON of a frame's body; raises `ProtocolError` for anything but strict JSON."""
    try:
        text = body.decode("utf-8")
        message = _decoder.decode(text)
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"not strict JSON: {type(error).__name__}") from error
    # Escaped lone surrogates pass both the UTF-8 decoder and the JSON parser, so look for them when one is written.
    if "\\u" in text and _has_surrogate(message):
        raise ProtocolError("a lone surrogate is not text")
    return message


def _has_surrogate(message: Any) -> bool:
    pending = [message]
    while pending:
        value = pending.pop()
        if isinstance(value, str):
            try:
                value.encode("utf-8")
            except UnicodeEncodeError:
                return True
        elif isinstance(value, list):
            pending.extend(value)
        elif isinstance(value, dict):
            pending.extend(value)
            pending.extend(value.values())
    return False
