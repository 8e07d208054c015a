"""The Log tab: an attempt's own lines, and lines with a text found in all of the log, not only in its shown end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from webapp.runs import logsearch
from webapp.runs.logtail import TAIL_BYTES


def printed(run: Any, *parts: str) -> Path:
    """The log of a run whose attempts printed these parts; two attempts exist for two parts."""
    from webapp.runs.models import Attempt

    path = Path(run.directory) / "log.txt"
    offset = 0
    for number, text in enumerate(parts, start=1):
        Attempt.objects.update_or_create(run=run, number=number, defaults={"log_offset": offset})
        offset += len(text.encode())
    path.write_bytes("".join(parts).encode())
    return path


def log(client: Client, run: Any, **query: str) -> Any:
    return client.get(f"/runs/{run.pk}/log/", query)


def file(client: Client, run: Any, **query: str) -> bytes:
    answer = client.get(f"/runs/{run.pk}/log.txt", query)
    assert answer.status_code == 200
    return b"".join(answer.streaming_content)


def test_each_attempt_has_its_own_lines_on_the_page_and_as_a_file(run: Any, viewer: Client) -> None:
    printed(run, "one é\nlast of one\n", "two\n", "three\n")
    assert log(viewer, run).context["tail"].text == "one é\nlast of one\ntwo\nthree\n"
    for number, text in ((1, "one é\nlast of one\n"), (2, "two\n"), (3, "three\n")):
        answer = log(viewer, run, attempt=str(number))
        assert (answer.context["tail"].text, answer.context["tail"].size) == (text, len(text.encode()))
        assert f'href="/runs/{run.pk}/log.txt?attempt={number}"' in answer.content.decode()
        assert file(viewer, run, attempt=str(number)) == text.encode()
    assert 'href="?attempt=2"' in log(viewer, run).content.decode()
    assert file(viewer, run) == "one é\nlast of one\ntwo\nthree\n".encode()
    assert viewer.get(f"/runs/{run.pk}/log.txt?attempt=9").status_code == 404
    name = viewer.get(f"/runs/{run.pk}/log.txt?attempt=2")["Content-Disposition"]
    assert name == f'attachment; filename="run-{run.pk}-attempt-2-log.txt"'


def test_the_page_that_is_asked_again_keeps_the_attempt(run: Any, viewer: Client) -> None:
    printed(run, "one\n", "two\n")
    assert f'hx-get="/runs/{run.pk}/log/?attempt=2"' in log(viewer, run, attempt="2").content.decode()


@pytest.mark.parametrize("offsets", [(0,), (0, 0), (50, 50)])
def test_attempts_are_not_offered_when_nobody_knows_where_they_begin(
    run: Any, viewer: Client, offsets: tuple[int, ...]
) -> None:
    from webapp.runs.models import Attempt

    printed(run, "one\ntwo\n")
    for number, offset in enumerate(offsets, start=1):
        Attempt.objects.update_or_create(run=run, number=number, defaults={"log_offset": offset})
    assert log(viewer, run).context["parts"] == []
    assert log(viewer, run, attempt="1").context["tail"].text == "one\ntwo\n"
    assert viewer.get(f"/runs/{run.pk}/log.txt?attempt=1").status_code == 404


def test_attempts_from_before_the_log_was_removed_are_not_offered(run: Any, viewer: Client) -> None:
    from webapp.runs.models import Attempt

    printed(run, "", "three\n", "four\n")
    Attempt.objects.filter(run=run, number=1).update(log_offset=90_000)  # of the file that retention removed
    parts = log(viewer, run).context["parts"]
    assert [part["label"] for part in parts] == ["all of it", "attempt 2", "attempt 3"]
    assert log(viewer, run, attempt="2").context["tail"].text == "three\n"


def test_a_text_is_found_far_before_the_shown_end(run: Any, viewer: Client) -> None:
    filler = "nothing here\n" * (2 * TAIL_BYTES // 13)
    printed(run, f"Loss is NaN at 3\n{filler}", "loss is nan again\n")
    assert "NaN at 3" not in log(viewer, run).context["tail"].text
    found = log(viewer, run, find="LOSS is nan").context["found"]
    assert found.lines == [(1, "Loss is NaN at 3"), (filler.count("\n") + 2, "loss is nan again")]
    html = log(viewer, run, find="LOSS is nan").content.decode()
    assert "2 lines with “LOSS is nan”" in html
    assert "hx-get" not in html.split('<div id="log"')[1].split(">")[0]  # what was found stays while one reads it
    only = log(viewer, run, find="loss is nan", attempt="2")
    assert only.context["found"].lines == [(1, "loss is nan again")]
    assert 'name="attempt" value="2"' in only.content.decode()
    assert "0 lines with “nowhere”" in log(viewer, run, find="nowhere").content.decode()


def test_lines_are_searched_as_they_are_shown(run: Any, viewer: Client) -> None:
    printed(run, "\x1b[31mred\x1b[0m alert\n10 %\r99 %\r100 %\n<script>alert(1)</script>\n")
    assert log(viewer, run, find="red alert").context["found"].lines == [(1, "red alert")]
    assert log(viewer, run, find="10 %").context["found"].total == 0
    html = log(viewer, run, find="<script>alert").content.decode()
    assert "&lt;script&gt;alert(1)" in html
    assert "<script>alert" not in html


def test_what_is_found_is_bounded_and_says_so(run: Any, viewer: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    printed(run, "".join(f"line {number}\n" for number in range(2_500)))
    found = log(viewer, run, find="line")
    assert (found.context["found"].total, len(found.context["found"].lines)) == (2_500, 500)
    assert "2\u202f500 lines with “line”, the first 500 are shown" in found.content.decode()
    monkeypatch.setattr(logsearch, "SEARCH_S", 0.0)
    cut = log(viewer, run, find="line")
    assert (cut.context["found"].total, cut.context["found"].is_cut) == (1_000, True)
    assert "were searched" in cut.content.decode()


def test_a_line_of_megabytes_is_searched_in_pieces(run: Any, viewer: Client) -> None:
    printed(run, "x" * 3_000_000 + "needle\nneedle too\n")
    found = log(viewer, run, find="needle").context["found"]
    assert [number for number, _ in found.lines] == [1, 2]
    assert found.lines[0][1].endswith("xxneedle") and len(found.lines[0][1]) < 2_000


def test_without_a_log_nothing_is_found_and_the_page_says_so(run: Any, viewer: Client) -> None:
    (Path(run.directory) / "log.txt").unlink(missing_ok=True)
    assert "Nothing printed yet" in log(viewer, run, find="x").content.decode()


@pytest.mark.django_db
def test_a_log_that_is_one_long_line_is_not_searched_beyond_its_time(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (Path(run.directory) / "log.txt").write_bytes(b"x" * (logsearch._LINE_BYTES * 1100))
    monkeypatch.setattr(logsearch, "SEARCH_S", 0.0)
    found = logsearch.find_lines(run=run, text="needle")
    assert found is not None and found.is_cut
    assert found.searched_bytes == logsearch._LINE_BYTES * 1000


def test_what_is_found_is_shown_also_after_letters_that_grow_when_folded(run: Any) -> None:
    (Path(run.directory) / "log.txt").write_text("ß" * 3000 + "NEEDLE" + "z" * 4000)
    found = logsearch.find_lines(run=run, text="needle")
    assert found is not None
    ((number, text),) = found.lines
    assert number == 1 and "NEEDLE" in text
