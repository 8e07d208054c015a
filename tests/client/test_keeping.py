"""The client against the real server: corpora, checkpoints over a bad line, disk, retention, imports."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings as django_settings

from spadework_client import Client, Forbidden, InvalidRequest, Refused, SpadeworkError, Unreachable
from tests.client.cutting import CuttingProxy
from tests.client.test_client import ROOT, examples
from tests.keeping.test_imports import small_run
from tests.pages.test_checkpoint_pages import MODEL, store

pytestmark = pytest.mark.django_db(transaction=True)
LINES = b'{"text": "tiles cover a floor", "title": "Tiles"}\n{"text": "a lamp turns on"}\n'


def test_a_corpus_is_uploaded_waited_for_and_chosen(client_for: Callable[..., Client], tmp_path: Path) -> None:
    from webapp.corpora.checking import check

    first, second = tmp_path / 'ti"les ü.jsonl', tmp_path / "more.txt"
    first.write_bytes(LINES)
    second.write_bytes(b"x" * 3_000_000)  # more than one piece
    client = client_for()
    made = client.upload_corpus(first, second, name="my tiles", licence="MIT")
    assert (made["state"], made["file_count"], made["bytes"]) == ("checking", 2, len(LINES) + 3_000_000)
    folder = Path(made["source"])
    assert sorted(file.read_bytes() for file in folder.iterdir()) == sorted([LINES, b"x" * 3_000_000])
    threading.Timer(0.5, in_thread(lambda: check(corpus_id=made["id"]))).start()
    ready = client.wait_for_corpus(made["id"], timeout_s=120, poll_s=0.2)
    assert ready["documents"] == 3
    assert [one["name"] for one in client.corpora() if one["origin"] == "uploaded"] == ["my tiles"]
    run = client.create_run("demo", {"corpus.source": ready["source"]})
    assert run["config"]["corpus"]["source"] == made["source"]
    assert client.edit_corpus(made["id"], notes="ours")["notes"] == "ours"
    assert client.check_corpus(made["id"])["state"] == "checking"
    client.delete_corpus(made["id"])
    assert made["id"] not in [one["id"] for one in client.corpora()]
    shutil.rmtree(folder)


def in_thread(act: Callable[[], None]) -> Callable[[], None]:
    def act_and_close() -> None:
        from django.db import connections

        try:
            act()
        finally:
            connections.close_all()

    return act_and_close


def test_what_is_no_corpus_is_refused_with_the_reason(client_for: Callable[..., Client], tmp_path: Path) -> None:
    from webapp.corpora.checking import check

    client = client_for()
    (tmp_path / "c.zip").write_bytes(b"PK")
    with pytest.raises(InvalidRequest, match="archives are not unpacked"):
        client.upload_corpus(tmp_path / "c.zip")
    with pytest.raises(FileNotFoundError):
        client.upload_corpus(tmp_path / "none.txt")
    with pytest.raises(InvalidRequest, match="at least one file"):
        client.upload_corpus()
    (tmp_path / "empty.txt").touch()
    made = client.upload_corpus(tmp_path / "empty.txt")
    check(corpus_id=made["id"])
    with pytest.raises(SpadeworkError, match=r"not usable: .*no usable document"):
        client.wait_for_corpus(made["id"])
    with pytest.raises(Refused, match="SPADEWORK_CORPORA_ROOT"):
        client.corpus_choices()
    with pytest.raises(Forbidden):
        client_for("operator", "read").upload_corpus(tmp_path / "empty.txt")


def test_a_server_that_hangs_up_on_an_upload_is_told_apart_from_one_that_is_away(tmp_path: Path) -> None:
    (tmp_path / "large.txt").write_bytes(b"x" * 20_000_000)
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def hang_up() -> None:
            connection, _ = listener.accept()
            connection.recv(1000)
            connection.close()  # with bytes unread: a reset

        threading.Thread(target=hang_up, daemon=True).start()
        client = Client(f"http://127.0.0.1:{listener.getsockname()[1]}", "spw_x")
        with pytest.raises(Unreachable, match="larger than it takes"):
            client.upload_corpus(tmp_path / "large.txt")


@pytest.fixture
def saved(ingested: Callable[..., Any]) -> Any:
    run = ingested()
    for name, value in (("000001", 0.2), ("000002", 0.5), ("000003", None)):
        store(run, name, value)
    return run


@pytest.fixture
def line(live_site: str) -> Iterator[Callable[..., CuttingProxy]]:
    """``line(limit=…, cuts=…)``: a bad line to the server."""
    made: list[CuttingProxy] = []

    def make(**options: Any) -> CuttingProxy:
        made.append(CuttingProxy(live_site, **options))
        return made[-1]

    yield make
    for one in made:
        one.close()


def names_in(path: Path) -> set[str]:
    with tarfile.open(path) as archive:
        return {name.split("/", 1)[1] for name in archive.getnames()}


def test_the_best_checkpoint_is_saved_over_a_line_that_breaks(
    saved: Any, client_for: Callable[..., Client], token_for: Callable[..., str], line: Any, tmp_path: Path
) -> None:
    client = client_for()
    assert [(row["name"], row["best"]) for row in client.checkpoints(saved.pk) if row["stored"]] == [
        ("000003", False), ("000002", True), ("000001", False),
    ]  # fmt: skip
    whole = client.download_checkpoint(saved.pk, "best", tmp_path / "whole.tar")
    assert names_in(whole) == set(MODEL)
    proxy = line(limit=400_000, cuts=3)
    again = Client(proxy.url, token_for("operator", "control")).download_checkpoint(
        saved.pk, "best", tmp_path / "again.tar"
    )
    assert again.read_bytes() == whole.read_bytes()
    assert proxy.cuts == 0
    starts = [
        int(asked.removeprefix("bytes=").split("-")[0]) for asked in proxy.ranges[1:]
    ]  # the first one asks for the size
    assert len(starts) == 3
    assert starts == sorted(starts)
    assert 390_000 < starts[0] < 400_000
    assert not list(tmp_path.glob("*.part"))
    everything = client.download_checkpoint(saved.pk, "2", tmp_path / "all.tar", with_optimiser=True)
    assert "state/learner.pt" in names_in(everything)


def test_what_an_earlier_call_saved_is_gone_on_with(
    saved: Any, client_for: Callable[..., Client], token_for: Callable[..., str], line: Any, tmp_path: Path
) -> None:
    whole = client_for().download_checkpoint(saved.pk, "000002", tmp_path / "whole.tar").read_bytes()
    token, target = token_for("operator", "control"), tmp_path / "model.tar"
    bad = line(limit=500_000, cuts=1)
    bad.on_cut = bad.stop
    with pytest.raises(Unreachable):
        Client(bad.url, token, tries=1).download_checkpoint(saved.pk, "000002", target)
    (part,) = tmp_path.glob("model.tar.*.part")
    have = part.stat().st_size
    assert 490_000 < have < 500_000
    assert not target.exists()
    good = line()
    Client(good.url, token).download_checkpoint(saved.pk, "000002", target)
    assert good.ranges == ["bytes=1-1", f"bytes={have}-"]
    assert target.read_bytes() == whole
    assert not part.exists()


def test_another_best_meanwhile_is_noticed(
    saved: Any, token_for: Callable[..., str], line: Any, tmp_path: Path
) -> None:
    def another_becomes_the_best() -> None:
        shutil.rmtree(Path(saved.directory) / "checkpoints" / "000001")
        store(saved, "000001", 0.9)
        shutil.rmtree(Path(saved.directory) / "checkpoints" / "000002")

    proxy = line(limit=400_000, cuts=1, on_cut=another_becomes_the_best)
    client = Client(proxy.url, token_for("operator", "control"))
    with pytest.raises(SpadeworkError, match="another one"):
        client.download_checkpoint(saved.pk, "best", tmp_path / "best.tar")
    assert not (tmp_path / "best.tar").exists()


def test_a_checkpoint_that_is_gone_says_so(saved: Any, client_for: Callable[..., Client], tmp_path: Path) -> None:
    with pytest.raises(Refused, match="not on the disk"):
        client_for().download_checkpoint(saved.pk, "000009", tmp_path / "none.tar")
    with pytest.raises(Forbidden):
        client_for("viewer", "read").download_checkpoint(saved.pk, "best", tmp_path / "none.tar")
    assert list(tmp_path.glob("none*")) == []


def test_disk_and_retention(saved: Any, client_for: Callable[..., Client]) -> None:
    from webapp.keeping.disk import measure

    client = client_for("admin", "admin")
    client.measure_disk()
    measure()
    assert [one["run"] for one in client.disk()] == [saved.pk]
    assert client.disk_totals()["checkpoints"] == next(client.disk())["checkpoint_bytes"] > 0
    plan = client.plan_retention(restore_days=7)
    assert plan["removes"]["runs"] == 0
    assert client.change_retention(restore_days=7, keep_last=None)["restore_days_in_force"] == 7
    assert client.retention()["restore_days"] == 7
    with pytest.raises(Forbidden):
        client_for("operator", "control").retention()


def test_a_run_directory_is_imported(client_for: Callable[..., Client]) -> None:
    from webapp.keeping.tasks import import_directory

    root = Path(django_settings.SPADEWORK_IMPORT_ROOT)
    small_run(root / "cluster" / "tanks")
    (root / "cluster" / "broken").mkdir()
    (root / "cluster" / "broken" / "config.json").write_text("{")
    client = client_for()
    try:
        assert [one["path"] for one in client.import_folders("cluster")["folders"] if one["is_run"]] == [
            "cluster/broken", "cluster/tanks",
        ]  # fmt: skip
        job = client.import_run("cluster/tanks", name="theirs")
        threading.Timer(0.5, in_thread(lambda: import_directory(job["id"]))).start()
        done = client.wait_for_import(job["id"], timeout_s=120, poll_s=0.2)
        assert client.run(done["run"])["name"] == "theirs"
        broken = client.import_run("cluster/broken")
        import_directory(broken["id"])
        with pytest.raises(SpadeworkError, match="is no run directory"):
            client.wait_for_import(broken["id"])
        assert [one["state"] for one in client.imports()] == ["failed", "done"]
    finally:
        shutil.rmtree(root)


def test_the_example_of_the_documentation_runs(
    saved: Any, live_site: str, token_for: Callable[..., str], tmp_path: Path
) -> None:
    from webapp.corpora.checking import check
    from webapp.corpora.models import Corpus

    (tmp_path / "tiles.jsonl").write_bytes(LINES)
    variables = {
        "SPADEWORK_URL": live_site,
        "SPADEWORK_TOKEN": token_for("operator", "control"),
        "PYTHONPATH": str(ROOT),
    }
    done = subprocess.Popen(
        [sys.executable, "-c", examples()[1]], env=variables, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )  # fmt: skip
    deadline = time.monotonic() + 120
    while done.poll() is None and time.monotonic() < deadline:
        for corpus in Corpus.objects.filter(state="checking", origin="uploaded"):
            check(corpus_id=corpus.pk)
        time.sleep(0.2)
    done.kill()
    said, _ = done.communicate()
    assert done.returncode == 0, said
    lines = said.splitlines()
    assert lines[:3] == ["2 documents", "[]", "000002 0.5"]
    assert lines[3].endswith("free")
    assert names_in(tmp_path / "tanks.tar") == set(MODEL)
