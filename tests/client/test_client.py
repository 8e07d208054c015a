"""The client against the real server: pages, typed errors, waiting, and the worked example of the documentation."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest

from spadework_client import (
    Client,
    Forbidden,
    InvalidRequest,
    NotAuthenticated,
    NotFound,
    Refused,
    RunEnded,
    SpadeworkError,
    Unreachable,
    WaitTimedOut,
)

pytestmark = pytest.mark.django_db(transaction=True)
ROOT = Path(__file__).parents[2]


def test_iterators_follow_pages_and_a_transcript_is_whole(
    client_for: Callable[..., Client], ingested: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = ingested(rollouts=4)
    client = client_for("viewer", "read")
    assert [row["id"] for row in client.episodes(run.pk, limit=5)] == list(
        run.episodes.order_by("-id").values_list("id", flat=True)
    )
    assert [row["rollout"] for row in client.rollouts(run.pk)] == [0, 1, 2, 3]
    episode = run.episodes.order_by("-turns").first()
    monkeypatch.setattr("spadework_client.client._TURNS", 1)
    assert client.transcript(run.pk, episode.pk)["turns"] == episode.transcript.turns
    names = client.metrics(run.pk)
    assert list(client.series(run.pk, *names[:2])) == names[:2]


def test_errors_are_typed_and_say_what_the_server_said(client_for: Callable[..., Client], live_site: str) -> None:
    client = client_for()
    with pytest.raises(InvalidRequest) as invalid:
        client.create_run("demo", {"schedule.rollouts": -1})
    assert invalid.value.problems[0]["path"] == "schedule.rollouts"
    assert "schedule.rollouts" in str(invalid.value)
    with pytest.raises(NotFound, match="no run 999"):
        client.run(999)
    with pytest.raises(Refused, match="is draft"):
        client.act(client.create_run("demo")["id"], "pause")
    with pytest.raises(Forbidden, match="scope is read"):
        client_for("operator", "read").create_run("demo")
    with pytest.raises(NotAuthenticated, match="no such token"):
        Client(live_site, "spw_wrong").me()


def test_waiting_returns_the_run_or_says_how_it_ended(client_for: Callable[..., Client]) -> None:
    client = client_for()
    run = client.create_run("demo", start=True)
    with pytest.raises(WaitTimedOut) as late:
        client.wait_for(run["id"], until=("running",), timeout_s=0.5, poll_s=0.1)
    assert late.value.last["status"] == "queued"
    client.act(run["id"], "stop")
    assert client.wait_for(run["id"], timeout_s=60)["status"] == "stopped"
    with pytest.raises(RunEnded, match="is stopped"):
        client.wait_for(run["id"], until=("running",))


def test_a_pools_archive_is_saved_and_checked(
    client_for: Callable[..., Client], ingested: Callable[..., Any], tmp_path: Path
) -> None:
    from webapp.pools.archive import archive_path, write_archive
    from webapp.pools.models import Pool

    run = ingested(rollouts=2)
    client = client_for("reviewer", "review")
    pool = client.create_pool("best")
    assert client.add_to_pool(pool["id"], run.pk, state="active")["added"] > 0
    with pytest.raises(NotFound):
        client.download_pool(pool["id"], tmp_path / "early.tar")
    size, digest = write_archive(path=archive_path(pool_id=pool["id"]), files={"README.md": b"a pool"})
    built = Pool.objects.filter(pk=pool["id"])
    built.update(state="ready", archive_bytes=size, archive_sha256=digest)
    assert client.download_pool(pool["id"], tmp_path / "pool.tar").stat().st_size == size
    built.update(archive_sha256="0" * 64)
    with pytest.raises(SpadeworkError, match="built again"):
        client.download_pool(pool["id"], tmp_path / "pool.tar")


def examples() -> list[str]:
    """The Python of the documentation."""
    return [part.split("```")[0] for part in (ROOT / "docs" / "api.md").read_text().split("```python\n")[1:]]


def test_the_worked_example_of_the_documentation_runs(
    live_site: str, token_for: Callable[..., str], ingested: Callable[..., Any]
) -> None:
    run = ingested(rollouts=4)
    example = examples()[0]
    variables = {
        "SPADEWORK_URL": live_site,
        "SPADEWORK_TOKEN": token_for("operator", "control"),
        "PYTHONPATH": str(ROOT),
    }
    done = subprocess.run(
        [sys.executable, "-c", example], env=variables, capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[:2] == ["operator", "schedule.rollouts"]
    assert "from a script is stopped" in lines
    assert [line.split()[0] for line in lines[4 : 4 + run.rollouts_done]] == ["0", "1", "2", "3"]


class Flaky(BaseHTTPRequestHandler):
    """Away for the first request, then well; a redirect and a page of a proxy on demand."""

    seen: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self.seen.append(self.path)
        if "redirect" in self.path:
            self.send_response(302)
            self.send_header("Location", "http://127.0.0.1:9/elsewhere")
            self.end_headers()
            return
        first = len(self.seen) == 1
        self.send_response(503 if first else 200)
        self.end_headers()
        self.wfile.write(b"<html>proxy</html>" if first else b'{"username": "ana"}')

    def log_message(self, *_: Any) -> None:
        return


@pytest.fixture
def flaky() -> Any:
    Flaky.seen = []
    server = HTTPServer(("127.0.0.1", 0), Flaky)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


def test_reads_are_repeated_when_the_server_is_briefly_away(flaky: str) -> None:
    assert Client(flaky, "spw_x").me() == {"username": "ana"}
    assert len(Flaky.seen) == 2


def test_the_token_goes_to_no_other_server(flaky: str) -> None:
    client = Client(flaky, "spw_x", tries=1)
    with pytest.raises(SpadeworkError, match="302"):
        client._get("redirect/")
    with pytest.raises(ValueError, match="not sent there"):
        client._get("http://example.org/api/v1/me/")
    with pytest.raises(ValueError, match="no address"):
        Client("127.0.0.1:8400", "spw_x")


def test_nobody_there_is_said_plainly() -> None:
    began = time.monotonic()
    with pytest.raises(Unreachable, match=r"No answer from http://127\.0\.0\.1:9/"):
        Client("http://127.0.0.1:9", "spw_x", tries=1).me()
    assert time.monotonic() - began < 30


def test_it_imports_without_django() -> None:
    code = (
        "import sys, spadework_client; print(sorted(m for m in ('django', 'webapp', 'pydantic') if m in sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "[]"
