"""Gate `extract`: the program inside a designer's reply, with the f-string repair (spec 3 and 4)."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass

_FENCE = re.compile(r"```[ \t]*(?:python|py|python3)[ \t]*\r?\n(.*?)(?:\r?\n[ \t]*```|\Z)", re.DOTALL | re.IGNORECASE)
_BARE_FENCE = re.compile(r"\A\s*```[ \t]*\r?\n(.*?)\r?\n[ \t]*```\s*\Z", re.DOTALL)
_FSTRING_START = re.compile(r"""(?<![A-Za-z0-9_])(?:[fF][rR]?|[rR][fF])(?=['"])""")
_MAX_REPAIRED_LINES = 200
_MAX_LINE_CHARS = 2000


@dataclass(frozen=True, slots=True)
class Extracted:
    """`code` of the reply; `problem` is "" or why the gate failed; `repaired_lines` counts doubled braces."""

    code: str
    problem: str = ""
    repaired_lines: int = 0


def extract_program(reply: str, *, source_bytes: int) -> Extracted:
    """Code of the first python fence, else of the whole reply; fails when there is none or it exceeds `source_bytes`."""
    code = code_block(reply)
    if not code.strip():
        return Extracted(code="", problem="the reply holds no code")
    size = len(code.encode("utf-8", "replace"))
    if size > source_bytes:
        return Extracted(code=code, problem=f"the code has {size} bytes; gates.source_bytes allows {source_bytes}")
    if "class " not in code:
        return Extracted(code=code, problem="the reply holds no class definition")
    fixed, lines = repair_fstrings(code)
    return Extracted(code=fixed, repaired_lines=lines)


def code_block(reply: str) -> str:
    """Content of the first ```python fence (an unclosed one runs to the end), else the whole stripped reply."""
    visible = reply.rsplit("</think>", 1)[-1]
    found = _FENCE.search(visible) or _BARE_FENCE.match(visible)
    return (found.group(1) if found else visible).strip()


def repair_fstrings(code: str) -> tuple[str, int]:
    """Double literal braces in f-strings of single lines that do not parse, where that makes them parse.

    Only lines that fail on their own as an f-string are touched, and only when the program as a whole does not parse. Source is
    parsed here, never run; `ast.parse` of one short line is bounded.
    """
    if len(code) > 400_000 or _parses(code):
        return code, 0
    lines = code.split("\n")
    repaired = 0
    for i, line in enumerate(lines):
        if len(line) > _MAX_LINE_CHARS or not _FSTRING_START.search(line) or "{" not in line:
            continue
        fixed = _repair_line(line)
        if fixed is not None:
            lines[i] = fixed
            repaired += 1
            if repaired >= _MAX_REPAIRED_LINES:
                break
    return "\n".join(lines), repaired


def _repair_line(line: str) -> str | None:
    """The line with the offending brace groups of its f-strings doubled, or None when it is fine or cannot be helped."""
    changed = False
    out: list[str] = []
    position = 0
    for literal in _fstring_literals(line):
        start, end = literal
        text = line[start:end]
        if not _parses(text):
            fixed = _double_bad_groups(text)
            if fixed is None:
                return None
            text, changed = fixed, True
        out += [line[position:start], text]
        position = end
    return "".join([*out, line[position:]]) if changed else None


def _fstring_literals(line: str) -> list[tuple[int, int]]:
    """Spans of single-line f-string literals; a quote inside a replacement field ends the literal, as in Python 3.11."""
    spans: list[tuple[int, int]] = []
    position = 0
    while found := _FSTRING_START.search(line, position):
        quote_at = found.end()
        quote = line[quote_at]
        if line[quote_at : quote_at + 3] == quote * 3:
            position = quote_at + 3
            continue
        i = quote_at + 1
        while i < len(line) and line[i] != quote:
            i += 2 if line[i] == "\\" else 1
        if i >= len(line):
            break
        spans.append((found.start(), i + 1))
        position = i + 1
    return spans


def _double_bad_groups(literal: str) -> str | None:
    """Double each `{…}` group that does not parse as a replacement field of its own."""
    quote_at = min(i for i in (literal.find("'"), literal.find('"')) if i >= 0)
    prefix, body, quote = literal[:quote_at], literal[quote_at + 1 : -1], literal[quote_at]
    out: list[str] = []
    i = 0
    while i < len(body):
        if body[i : i + 2] in ("{{", "}}"):
            out.append(body[i : i + 2])
            i += 2
        elif body[i] == "{":
            end = body.find("}", i)
            group = body[i : end + 1] if end >= 0 else body[i:]
            fine = end >= 0 and _parses(f"{prefix}{quote}{group}{quote}")
            out.append(group if fine else group.replace("{", "{{").replace("}", "}}"))
            i += len(group)
        elif body[i] == "}":
            out.append("}}")
            i += 1
        else:
            out.append(body[i])
            i += 1
    fixed = f"{prefix}{quote}{''.join(out)}{quote}"
    return fixed if _parses(fixed) else None


def _parses(source: str) -> bool:
    try:
        ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True
