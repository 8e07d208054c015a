"""Downloads under ASGI come in pieces, without Django's warning that it reads all of them first."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.conf import settings as django_settings
from django.db import connections
from django.http import FileResponse, HttpResponse, StreamingHttpResponse
from django.test import AsyncClient, AsyncRequestFactory, Client, RequestFactory

from trainer.checkpoint_files import CHECKPOINT_FORMAT, digests_and_sync, write_marker
from webapp.core.streaming import PIECE_BYTES, StreamInPieces

BODY = bytes(range(256)) * 8_000  # 2 MB


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "large"
    path.write_bytes(BODY)
    return path


async def test_a_file_is_read_a_piece_at_a_time(file: Path) -> None:
    opened = file.open("rb")
    answer: Any = StreamInPieces(lambda _request: FileResponse(opened))(AsyncRequestFactory().get("/"))
    assert answer.headers["Content-Length"] == str(len(BODY))
    pieces = []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        async for piece in answer:
            pieces.append(piece)
            assert opened.tell() <= len(b"".join(pieces)) + 8192  # no further than what was sent
    assert b"".join(pieces) == BODY
    assert max(map(len, pieces)) <= PIECE_BYTES + 4096
    answer.close()
    assert opened.closed


async def test_what_is_no_file_and_what_is_asynchronous_already_is_left_as_it_is() -> None:
    async def two() -> Any:
        yield b"one"
        yield b"two"

    asynchronous = StreamingHttpResponse(two())
    plain = HttpResponse(b"whole")
    request = AsyncRequestFactory().get("/")
    assert StreamInPieces(lambda _request: plain)(request) is plain
    answer: Any = StreamInPieces(lambda _request: asynchronous)(request)
    assert [piece async for piece in answer] == [b"one", b"two"]
    lines: Any = StreamInPieces(lambda _request: StreamingHttpResponse(iter([b"a", b"", b"b"])))(request)
    assert [piece async for piece in lines] == [b"ab"]


def test_without_asgi_nothing_changes(file: Path) -> None:
    answer: Any = StreamInPieces(lambda _request: FileResponse(file.open("rb")))(RequestFactory().get("/"))
    assert b"".join(answer) == BODY


@pytest.mark.django_db(transaction=True)
async def test_the_products_own_downloads_are_asynchronous(tmp_path: Path) -> None:
    from django.contrib.auth.models import Group

    from webapp.accounts.models import User
    from webapp.runs.models import Run

    def prepare() -> tuple[Run, Client]:
        run = Run.objects.create(name="a", slug="a", config={}, seed=0, total_rollouts=1, directory=str(tmp_path))
        client = Client()
        user = User.objects.create_user("vera")
        user.groups.add(Group.objects.get_or_create(name="operator")[0])
        client.force_login(user, backend="django.contrib.auth.backends.ModelBackend")
        return run, client

    (tmp_path / "log.txt").write_bytes(BODY)
    model = tmp_path / "checkpoints" / "000001" / "model"
    model.mkdir(parents=True)
    (model / "model.safetensors").write_bytes(BODY)
    files = digests_and_sync(model.parent)
    write_marker(model.parent, {"format": CHECKPOINT_FORMAT, "next_rollout": 1, "files": files})
    run, signed_in = await sync_to_async(prepare)()
    client = AsyncClient()
    client.cookies = signed_in.cookies
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        answer: Any = await client.get(f"/runs/{run.pk}/log.txt")
        assert (answer.status_code, answer.streaming, answer.is_async) == (200, True, True)
        assert b"".join([piece async for piece in answer.streaming_content]) == BODY
        archive: Any = await client.get(f"/api/v1/runs/{run.pk}/checkpoints/000001/model.tar")
        assert (archive.status_code, archive.streaming, archive.is_async) == (200, True, True)
        pieces = [piece async for piece in archive.streaming_content]
        assert BODY in b"".join(pieces)
        assert max(map(len, pieces)) <= PIECE_BYTES + 1024**2  # a head of the tar, and what is read of the disk at once
        archive.close()
        static: Any = await client.get(f"{django_settings.STATIC_URL}css/base.css")
        assert (static.status_code, static.is_async) == (200, True)
    await sync_to_async(connections.close_all)()  # of the thread that served the requests
