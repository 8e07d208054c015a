"""A pool as a SPADE pool folder: re-tested, complete, checkable, and the same bytes every time."""

from __future__ import annotations

import json
import subprocess
import tarfile
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

NULLABLE = {
    "difficulty": str, "checkpoint": str, "corpus_doc_id": str, "corpus_doc_sha256": str, "hint_sha256": str, "win_rate": float,
    "mean_reward": float, "r_hint": float, "r_no_hint": float, "regret_raw": float, "regret_used": float, "licence": str,
    "rollout_step": int,
}  # fmt: skip
ALWAYS = {
    "env_id": str, "file_name": str, "sha256": str, "byte_count": int, "line_count": int, "skill": str, "game_type": str,
    "source_run": str, "attempt": int, "generator_model": str, "recipe_hash": str, "memory_seed_ids": list, "hint_status": str,
    "n_plays": int, "n_hint_plays": int, "validation": dict, "review": dict, "exporter_version": str,
}  # fmt: skip


def contents(pool: Any) -> dict[str, bytes]:
    from webapp.pools.archive import archive_path

    with tarfile.open(archive_path(pool_id=pool.pk)) as archive:
        members = archive.getmembers()
        assert [member.name for member in members] == sorted(member.name for member in members)
        return {member.name.removeprefix("spade-pool/"): archive.extractfile(member).read() for member in members}


def manifest(pool: Any) -> list[dict[str, Any]]:
    return [json.loads(line) for line in contents(pool)["manifest.jsonl"].splitlines()]


def test_programs_that_fail_the_gates_again_are_left_out_and_counted(
    built: Callable[..., Any], programs: list[Any]
) -> None:
    pool = built()
    assert (pool.state, pool.tested, pool.total) == ("ready", 3, 3)
    item = pool.items.get(environment=programs[2])
    assert (item.accepted, item.failed_stage) == (False, "parse")
    files = contents(pool)
    assert sorted(name.split("/")[0] for name in files) == [
        "README.md", "checksums.sha256", "games", "games", "hints", "manifest.jsonl", "validation_summary.json",
    ]  # fmt: skip
    summary = json.loads(files["validation_summary.json"])
    assert (summary["accepted"], summary["rejected"], summary["rejected_by_stage"]) == (2, 1, {"parse": 1})


def test_a_program_is_exactly_what_was_played_and_its_hint_lies_apart(
    built: Callable[..., Any], programs: list[Any]
) -> None:
    pool = built()
    files = contents(pool)
    first, second = manifest(pool)
    assert files[f"games/{first['file_name']}"] == programs[0].code.encode()
    assert first["sha256"] == sha256(programs[0].code.encode()).hexdigest()
    stem = first["file_name"].removesuffix(".py")
    assert files[f"hints/{stem}_hint.txt"] == b"halve the range 0"
    assert (first["hint_status"], second["hint_status"], second["hint_sha256"]) == ("ok", "failed", None)
    assert b"halve the range" not in files[f"games/{first['file_name']}"] + files["manifest.jsonl"]


def test_the_trainer_reads_an_unpacked_pool(built: Callable[..., Any], programs: list[Any], tmp_path: Path) -> None:
    from trainer.fixed_pool import read_environments
    from webapp.pools.archive import archive_path

    pool = built()
    with tarfile.open(archive_path(pool_id=pool.pk)) as archive:
        archive.extractall(tmp_path, filter="data")
    first, second = read_environments(tmp_path / "spade-pool", "spade-pool")
    assert (first.code, first.hint, first.skill) == (programs[0].code, "halve the range 0", programs[0].skill)
    assert (second.code, second.hint) == (programs[1].code, None)


def test_the_same_pool_is_the_same_bytes(built: Callable[..., Any], reviewer: Any) -> None:
    from webapp.pools.archive import archive_path
    from webapp.pools.building import build
    from webapp.pools.services import build_pool

    pool = built()
    before = archive_path(pool_id=pool.pk).read_bytes()
    assert sha256(before).hexdigest() == pool.archive_sha256
    build_pool(actor=reviewer, pool_id=pool.pk)
    build(pool_id=pool.pk)
    assert archive_path(pool_id=pool.pk).read_bytes() == before
    other = built()
    assert archive_path(pool_id=other.pk).read_bytes() == before  # another pool of the same name and environments


def test_the_checksums_hold_for_every_file(built: Callable[..., Any], tmp_path: Path) -> None:
    from webapp.pools.archive import archive_path

    pool = built()
    with tarfile.open(archive_path(pool_id=pool.pk)) as archive:
        archive.extractall(tmp_path / "out", filter="data")
    folder = tmp_path / "out" / "spade-pool"
    checked = subprocess.run(["sha256sum", "-c", "checksums.sha256"], cwd=folder, capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout
    listed = {line.split("  ")[1] for line in (folder / "checksums.sha256").read_text().splitlines()}
    assert listed == {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()} - {
        "checksums.sha256"
    }


def test_case_25_the_manifest_never_changes_a_type(built: Callable[..., Any]) -> None:
    for entry in manifest(built()):
        assert set(entry) == {*ALWAYS, *NULLABLE}
        assert {name: type(entry[name]) for name in ALWAYS} == ALWAYS
        for name, kind in NULLABLE.items():
            assert entry[name] is None or type(entry[name]) is kind, (name, entry[name])


def test_case_25_the_card_types_every_column_so_that_a_thousand_nulls_stay_a_number(built: Callable[..., Any]) -> None:
    import yaml

    head = contents(built())["README.md"].decode().split("---\n")[1]
    said = yaml.safe_load(head)
    assert said["configs"] == [{"config_name": "default", "data_files": "manifest.jsonl"}]
    features = {one["name"]: one for one in said["dataset_info"]["features"]}
    assert list(features) == list(manifest(built())[0])  # the same fields in the same order
    words = {str: "string", int: "int64", float: "float64"}
    for name, kind in {**ALWAYS, **NULLABLE}.items():
        if kind in words:
            assert features[name]["dtype"] == words[kind], name
    assert features["memory_seed_ids"]["list"] == "string"
    for name in ("validation", "review"):
        assert {part["name"] for part in features[name]["struct"]} == set(manifest(built())[0][name])


def test_numbers_are_counted_from_plays_with_a_reward(built: Callable[..., Any], programs: list[Any], run: Any) -> None:
    environment = programs[0]
    episodes = run.episodes.filter(environment=environment)
    episodes.filter(arm="unhinted").update(reward=1.0, status="won")
    lost, broken = episodes.filter(arm="unhinted")[:2]
    type(lost).objects.filter(pk=lost.pk).update(reward=0.0, status="lost")
    type(broken).objects.filter(pk=broken.pk).update(reward=None, status="env_error")
    run.regretpoints.filter(environment=environment).update(regret=None, state="no_hint", hinted_mean=None)
    entry = manifest(built())[0]
    assert entry["n_plays"] == 5  # three plays at two offsets, one of them a fault
    assert entry["win_rate"] == entry["mean_reward"] == pytest.approx(4 / 5)
    assert entry["regret_raw"] is None


def test_file_names_never_come_from_a_model(built: Callable[..., Any], programs: list[Any]) -> None:
    environment = programs[0]
    environment.class_name, environment.skill = "../../etc/passwd", '=HYPERLINK("http://x")/../é'
    environment.save()
    pool = built()
    names = [entry["file_name"] for entry in manifest(pool)]
    digest = sha256(environment.code.encode()).hexdigest()[:12]
    assert names[0] == f"game_00000_000_hyperlink_http_x_{digest}.py"
    assert all(".." not in name for name in contents(pool))


def test_a_program_that_occurs_twice_is_in_the_pool_once(
    built: Callable[..., Any], programs: list[Any], run: Any
) -> None:
    twin = programs[0]
    twin.pk, twin.attempt, twin.superseded = None, 2, True
    twin.save(force_insert=True)
    chosen = [*run.environments.filter(superseded=False, rollout=0).order_by("slot")[:2], twin]
    pool = built(chosen=chosen)
    assert len(manifest(pool)) == 2
    assert json.loads(contents(pool)["validation_summary.json"])["duplicates"] == 1


def test_the_card_states_coverage_and_escapes_what_people_typed(built: Callable[..., Any], run: Any) -> None:
    text = contents(built(name="# tanks <script>", licence=""))["README.md"].decode()
    assert text.split("---\n\n")[1].startswith("# \\# tanks \\<script\\>\n")
    assert "Licence: not stated" in text
    assert (
        f"| {run.slug.replace('-', chr(92) + '-')} | 2 | {run.environments.filter(superseded=False).count()} | 0 to 0 | 4 of 4 | 100.0 % |"
        in text
    )
    assert "1 chosen programs are left out: 1 at parse" in text


def test_what_a_person_quarantined_is_left_out_unjudged(built: Callable[..., Any], programs: list[Any]) -> None:
    programs[0].state = "quarantined"
    programs[0].save()
    pool = built()
    item = pool.items.get(environment=programs[0])
    assert (item.accepted, item.failed_stage) == (False, "review")
    assert [entry["env_id"].split("/")[1] for entry in manifest(pool)] == [programs[1].key]


def test_a_build_that_was_stopped_offers_nothing(built: Callable[..., Any], reviewer: Any, viewer: Client) -> None:
    from webapp.pools.building import build
    from webapp.pools.services import build_pool, cancel_build

    pool = built()
    assert viewer.get(f"/pools/{pool.pk}/pool.tar").status_code == 200
    build_pool(actor=reviewer, pool_id=pool.pk)
    assert viewer.get(f"/pools/{pool.pk}/pool.tar").status_code == 404
    cancel_build(actor=reviewer, pool_id=pool.pk)
    build(pool_id=pool.pk)
    pool.refresh_from_db()
    assert (pool.state, pool.tested) == ("draft", 0)
    assert viewer.get(f"/pools/{pool.pk}/pool.tar").status_code == 404


@pytest.fixture
def meanwhile(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """``meanwhile(act, batch=2)``: programs are judged one by one, and ``act`` happens while the second is in the sandbox."""
    from webapp.pools import building

    def arrange(act: Callable[[], None], batch: int) -> None:
        left = iter(range(1, 100))

        class Bench(building.Bench):
            def borrow(self, *arguments: Any) -> Any:
                if next(left) == batch:
                    act()
                return super().borrow(*arguments)

        monkeypatch.setattr(building, "BATCH", 1)
        monkeypatch.setattr(building, "Bench", Bench)

    return arrange


def filled(reviewer: Any, programs: list[Any]) -> Any:
    from webapp.pools.services import add_environments, build_pool, create_pool

    pool = create_pool(actor=reviewer, name="tanks")
    add_environments(actor=reviewer, pool_id=pool.pk, environment_ids=[one.pk for one in programs])
    return build_pool(actor=reviewer, pool_id=pool.pk)


def test_a_build_that_was_stopped_and_begun_again_belongs_to_the_new_worker(
    programs: list[Any], reviewer: Any, meanwhile: Callable[..., None]
) -> None:
    from webapp.pools.building import build
    from webapp.pools.services import build_pool, cancel_build

    pool = filled(reviewer, programs)

    def stop_and_build_again() -> None:
        cancel_build(actor=reviewer, pool_id=pool.pk)
        build_pool(actor=reviewer, pool_id=pool.pk)

    meanwhile(stop_and_build_again, batch=2)
    build(pool_id=pool.pk)  # by the old worker, which stores nothing any more
    pool.refresh_from_db()
    assert (pool.state, pool.tested, pool.lease) == ("building", 0, None)
    assert not pool.items.exclude(accepted=None).exists()
    build(pool_id=pool.pk)
    pool.refresh_from_db()
    assert (pool.state, pool.tested, pool.total) == ("ready", 3, 3)
    assert sorted(pool.items.values_list("accepted", flat=True)) == [False, True, True]
    assert len(manifest(pool)) == 2


def test_what_is_taken_out_while_the_archive_is_written_is_not_in_it(
    programs: list[Any], reviewer: Any, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from webapp.pools import building
    from webapp.pools.services import build_pool, cancel_build, remove_item

    pool = filled(reviewer, programs[:2])
    gather = building.files_of

    def take_one_out_and_build_again(*arguments: Any) -> dict[str, bytes]:
        files = gather(*arguments)
        cancel_build(actor=reviewer, pool_id=pool.pk)
        remove_item(actor=reviewer, pool_id=pool.pk, item_id=pool.items.latest("pk").pk)
        build_pool(actor=reviewer, pool_id=pool.pk)
        return files

    monkeypatch.setattr(building, "files_of", take_one_out_and_build_again)
    building.build(pool_id=pool.pk)
    pool.refresh_from_db()
    assert (pool.state, pool.tested, pool.total) == ("building", 0, 1)
    assert list((home / "pools").iterdir()) == []
    monkeypatch.setattr(building, "files_of", gather)
    building.build(pool_id=pool.pk)
    pool.refresh_from_db()
    assert (pool.state, pool.tested, pool.total, len(manifest(pool))) == ("ready", 1, 1, 1)


def test_what_a_dead_worker_began_of_an_archive_does_not_stay(programs: list[Any], reviewer: Any, home: Path) -> None:
    from webapp.pools.building import build

    pool = filled(reviewer, programs[:1])
    (home / "pools").mkdir(parents=True)
    (home / "pools" / f"{pool.pk}.9d3c.part").write_bytes(b"half")
    (home / "pools" / f"{pool.pk}9.9d3c.part").write_bytes(b"of another pool")
    build(pool_id=pool.pk)
    assert {path.name for path in (home / "pools").iterdir()} == {f"{pool.pk}.tar", f"{pool.pk}9.9d3c.part"}


def test_the_lease_is_held_while_the_archive_is_written(
    programs: list[Any], reviewer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from webapp.pools import archive, building

    pool = filled(reviewer, programs[:1])
    held: list[object] = []
    add, renew = tarfile.TarFile.addfile, building.renew

    def count(*arguments: Any) -> bool:
        held.append("renewed")
        return renew(*arguments)

    def note(*arguments: Any) -> None:
        held.append("file")
        add(*arguments)

    monkeypatch.setattr(archive, "FILES_BETWEEN_LOOKS", 2)
    monkeypatch.setattr(building, "renew", count)
    monkeypatch.setattr(tarfile.TarFile, "addfile", note)
    building.build(pool_id=pool.pk)
    # README, checksums, program, hint, manifest, summary: six files.
    assert held[-9:] == ["renewed", "file", "file"] * 3


def test_a_build_goes_on_where_a_dead_worker_left_it(
    built: Callable[..., Any], reviewer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from webapp.pools import building
    from webapp.pools.services import build_pool

    pool = built()
    build_pool(actor=reviewer, pool_id=pool.pk)
    done = pool.items.first()
    type(done).objects.filter(pk=done.pk).update(accepted=False, failed_stage="contract")
    building.build(pool_id=pool.pk)
    done.refresh_from_db()
    assert (done.accepted, done.failed_stage) == (False, "contract")  # judged before: not again
    assert len(manifest(pool)) == 1


def test_a_broken_sandbox_fails_the_build_and_judges_nobody(built: Callable[..., Any], run: Any) -> None:
    run.config["sandbox"]["minimum_tier"] = "vault"
    run.save(update_fields=["config"])
    pool = built()
    assert pool.state == "failed"
    assert "vault" in pool.failure
    assert not pool.items.exclude(accepted=None).exists()


def test_adding_or_removing_takes_the_old_archive_off_the_page(
    built: Callable[..., Any], reviewer: Any, viewer: Client
) -> None:
    from webapp.pools.services import remove_item

    pool = built()
    remove_item(actor=reviewer, pool_id=pool.pk, item_id=pool.items.first().pk)
    assert viewer.get(f"/pools/{pool.pk}/pool.tar").status_code == 404
    assert "pool.tar" not in viewer.get(f"/pools/{pool.pk}/").content.decode()


def test_deleting_a_pool_deletes_its_archive(
    built: Callable[..., Any], reviewer: Any, django_capture_on_commit_callbacks: Any
) -> None:
    from webapp.pools.archive import archive_path
    from webapp.pools.services import delete_pool

    pool = built()
    path = archive_path(pool_id=pool.pk)
    assert path.is_file()
    with django_capture_on_commit_callbacks(execute=True):
        delete_pool(actor=reviewer, pool_id=pool.pk)
    assert not path.exists()


def test_a_pool_deleted_while_its_archive_is_written_leaves_no_file(
    programs: list[Any],
    reviewer: Any,
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
    django_capture_on_commit_callbacks: Any,
) -> None:
    from webapp.pools import building
    from webapp.pools.models import Pool
    from webapp.pools.services import cancel_build, delete_pool

    pool = filled(reviewer, programs[:1])
    gather = building.files_of

    def delete(*arguments: Any) -> dict[str, bytes]:
        files = gather(*arguments)
        with django_capture_on_commit_callbacks(execute=True):
            cancel_build(actor=reviewer, pool_id=pool.pk)
            delete_pool(actor=reviewer, pool_id=pool.pk)
        return files

    monkeypatch.setattr(building, "files_of", delete)
    building.build(pool_id=pool.pk)
    assert not Pool.objects.exists()
    assert list((home / "pools").iterdir()) == []


def test_a_checkpoint_that_a_resume_left_behind_wrote_nothing_after_it(run: Any, programs: list[Any]) -> None:
    from django.utils import timezone

    from webapp.pools.manifest import ManifestWriter
    from webapp.runs.models import Checkpoint

    Checkpoint.objects.filter(run=run).delete()
    for following, superseded in ((20, False), (23, True)):  # attempt 1 went on to 24; attempt 2 was resumed from 20
        Checkpoint.objects.create(
            run=run, attempt=1, rollout=following - 1, superseded=superseded, name=f"{following:06d}",
            next_rollout=following, bytes=1, elapsed_s=1, at=timezone.now(),
        )  # fmt: skip
    one = programs[0]
    one.attempt, one.rollout = 2, 25
    assert ManifestWriter(run, [one], licence="").line(one)["checkpoint"] == "000020"
    one.attempt, one.rollout, one.superseded = 1, 23, True  # of the line that was left: its own checkpoint counts
    assert ManifestWriter(run, [one], licence="").line(one)["checkpoint"] == "000023"


def test_the_flags_of_all_programs_are_read_at_once(run: Any, reviewer: Any, programs: list[Any]) -> None:
    from django.db import connection
    from django.test.utils import CaptureQueriesContext

    from webapp.pools.manifest import ManifestWriter
    from webapp.review.models import FlagKind
    from webapp.review.services import place_flag

    kind = FlagKind.objects.get(key="crash")
    place_flag(actor=reviewer, environment_id=programs[1].pk, kind_id=kind.pk)
    writer = ManifestWriter(run, programs, licence="")
    with CaptureQueriesContext(connection) as asked:
        reviews = [writer.line(one)["review"] for one in programs]
    assert [(one["flags"], one["reviewers"]) for one in reviews] == [([], 0), (["crash"], 1), ([], 0)]
    assert not any("review_flag" in one["sql"] for one in asked.captured_queries)
