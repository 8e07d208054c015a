"""Every operation of the API with an address and a body that are valid for a given run."""

from __future__ import annotations

from typing import Any

from django.core.files.uploadedfile import SimpleUploadedFile

#: Operation id -> least role.
NEEDS = {
    **dict.fromkeys(
        (
            "me", "presets_list", "queue_read", "runs_list", "runs_read", "runs_attempts", "runs_checkpoints", "runs_commands",
            "runs_metrics", "runs_series", "runs_rollouts", "candidates_list", "candidates_read", "documents_list", "documents_read",
            "environments_list", "environments_read", "memory_list", "regret_list", "episodes_list", "episodes_transcript",
            "flag_kinds_list", "flags_list", "flags_read", "environments_flags", "pools_list", "pools_read", "pools_items",
            "pools_download", "alerts_list", "runs_alerts", "corpora_list", "corpora_read", "disk_list", "disk_totals",
        ),
        "viewer",
    ),
    **dict.fromkeys(
        (
            "flags_place", "flags_withdraw", "review_queues_list", "review_queues_items", "review_queues_labels", "pools_create",
            "pools_add", "pools_act", "pools_delete",
        ),
        "reviewer",
    ),
    **dict.fromkeys(
        (
            "queue_move", "runs_create", "runs_dry_run", "runs_edit", "runs_act", "environments_judge", "flags_put_into_effect",
            "flags_undo_effect", "webhooks_list", "webhooks_create", "webhooks_deliveries", "webhooks_act", "webhooks_delete",
            "runs_checkpoint_download", "corpora_upload", "corpora_choices", "corpora_choose", "corpora_edit", "corpora_check",
            "corpora_delete", "disk_measure", "imports_list", "imports_create", "imports_read", "imports_folders",
        ),
        "operator",
    ),
    **dict.fromkeys(("audit_list", "retention_read", "retention_plan", "retention_change"), "admin"),
}  # fmt: skip
#: Answers of operations that are refused for a reason other than the role: nothing waits, nothing is built, nothing is proposed,
#: no checkpoint is on the disk, no folder is set to choose from or holds a run, a refused upload has no files to check.
REFUSED = {
    "runs_checkpoint_download": 409,
    "corpora_choices": 409,
    "corpora_choose": 409,
    "corpora_check": 409,
    "imports_create": 409,
    "imports_folders": 409,
    "webhooks_create": 409,
    "queue_move": 409,
    "pools_act": 409,
    "flags_put_into_effect": 409,
    "flags_undo_effect": 409,
    "pools_download": 404,
}
CREATED = {
    "runs_create": 201,
    "flags_place": 201,
    "pools_create": 201,
    "environments_judge": 202,
    "corpora_upload": 201,
    "corpora_delete": 204,
    "disk_measure": 202,
    "pools_delete": 204,
    "webhooks_delete": 204,
}


def things_of(run: Any) -> dict[str, Any]:
    """A flag, a pool, a queue, a webhook, a corpus and an import beside what the run recorded."""
    from webapp.accounts.models import User
    from webapp.alerts.models import Webhook
    from webapp.corpora.models import Corpus
    from webapp.keeping.models import ImportJob
    from webapp.pools.models import Pool
    from webapp.review.models import Flag, FlagKind, Queue

    environment = run.environments.filter(superseded=False).order_by("id").first()
    reviewer = User.objects.filter(username="reviewer-person").first()
    flag = Flag.objects.filter(run=run).order_by("id").first() or Flag.objects.create(
        run=run, environment=environment, subject="environment", kind=FlagKind.objects.first(), by=reviewer
    )
    pool, _ = Pool.objects.get_or_create(name="tanks")
    queue, _ = Queue.objects.get_or_create(name="suspicious", run=run)
    webhook, _ = Webhook.objects.get_or_create(name="chat", url="https://chat.example.org/hook")
    corpus = Corpus.objects.filter(origin="uploaded", deleted_at=None).order_by("id").first() or Corpus.objects.create(
        name="tiles", origin="uploaded", state="refused", source="/gone/tiles.jsonl"
    )
    job, _ = ImportJob.objects.get_or_create(path="cluster/tanks", state="failed")
    return {
        "corpus": corpus,
        "job": job,
        "webhook": webhook,
        "environment": environment,
        "flag": flag,
        "pool": pool,
        "queue": queue,
    }


def operation(name: str, run: Any) -> tuple[str, str, Any]:
    """Method, address and body."""
    things = things_of(run)
    key, base = things["environment"].key, f"/api/v1/runs/{run.pk}"
    flag, pool, queue = (f"/api/v1/{kind}s/{things[kind].pk}" for kind in ("flag", "pool", "queue"))
    webhook, corpus = f"/api/v1/webhooks/{things['webhook'].pk}", f"/api/v1/corpora/{things['corpus'].pk}"
    queue = queue.replace("/queues/", "/review-queues/")
    plan = {"preset": "demo", "overrides": {"schedule.rollouts": 3}}
    table: dict[str, tuple[str, str, Any]] = {
        "me": ("get", "/api/v1/me/", None),
        "audit_list": ("get", "/api/v1/audit/", None),
        "alerts_list": ("get", "/api/v1/alerts/", None),
        "runs_alerts": ("get", f"{base}/alerts/", None),
        "webhooks_list": ("get", "/api/v1/webhooks/", None),
        "webhooks_create": ("post", "/api/v1/webhooks/", {"name": "x", "url": "http://169.254.169.254/"}),
        "webhooks_deliveries": ("get", f"{webhook}/deliveries/", None),
        "webhooks_act": ("post", f"{webhook}/acts/enable/", None),
        "webhooks_delete": ("delete", f"{webhook}/", None),
        "corpora_list": ("get", "/api/v1/corpora/", None),
        "corpora_upload": ("upload", "/api/v1/corpora/", {"name": "lamps"}),
        "corpora_read": ("get", f"{corpus}/", None),
        "corpora_edit": ("patch", f"{corpus}/", {"licence": "MIT"}),
        "corpora_check": ("post", f"{corpus}/check/", None),
        "corpora_choices": ("get", "/api/v1/corpora/choices/", None),
        "corpora_choose": ("post", "/api/v1/corpora/choices/", {"path": "science"}),
        "corpora_delete": ("delete", f"{corpus}/", None),
        "disk_list": ("get", "/api/v1/disk/", None),
        "disk_totals": ("get", "/api/v1/disk/totals/", None),
        "disk_measure": ("post", "/api/v1/disk/measure/", None),
        "retention_read": ("get", "/api/v1/retention/", None),
        "retention_plan": ("post", "/api/v1/retention/plan/", {"tensor_days": 14}),
        "retention_change": ("patch", "/api/v1/retention/", {"keep_last": 2}),
        "imports_list": ("get", "/api/v1/imports/", None),
        "imports_create": ("post", "/api/v1/imports/", {"path": "cluster/tanks"}),
        "imports_read": ("get", f"/api/v1/imports/{things['job'].pk}/", None),
        "imports_folders": ("get", "/api/v1/imports/folders/?path=cluster", None),
        "presets_list": ("get", "/api/v1/presets/", None),
        "queue_read": ("get", "/api/v1/queue/", None),
        "queue_move": ("post", f"/api/v1/queue/{run.pk}/move/", {"to": "first"}),
        "runs_list": ("get", "/api/v1/runs/", None),
        "runs_create": ("post", "/api/v1/runs/", plan),
        "runs_dry_run": ("post", "/api/v1/runs/dry-run/", plan),
        "runs_read": ("get", f"{base}/", None),
        "runs_edit": ("patch", f"{base}/", {"notes": "seen"}),
        "runs_act": ("post", f"{base}/acts/checkpoint/", {}),
        "runs_attempts": ("get", f"{base}/attempts/", None),
        "runs_checkpoints": ("get", f"{base}/checkpoints/", None),
        "runs_checkpoint_download": ("get", f"{base}/checkpoints/000001/model.tar", None),
        "runs_commands": ("get", f"{base}/commands/", None),
        "runs_metrics": ("get", f"{base}/metrics/", None),
        "runs_series": ("get", f"{base}/metrics/series/?name=win_rate/unhinted", None),
        "runs_rollouts": ("get", f"{base}/rollouts/", None),
        "candidates_list": ("get", f"{base}/candidates/", None),
        "candidates_read": ("get", f"{base}/candidates/{run.candidates.first().key}/", None),
        "documents_list": ("get", f"{base}/documents/", None),
        "documents_read": ("get", f"{base}/documents/{run.corpusdocuments.first().pk}/", None),
        "environments_list": ("get", f"{base}/environments/", None),
        "environments_read": ("get", f"{base}/environments/{key}/", None),
        "environments_judge": ("post", f"{base}/environments/{key}/judge/quarantine/", {"reason": "leaks"}),
        "environments_flags": ("get", f"{base}/environments/{key}/flags/", None),
        "flags_place": ("post", f"{base}/environments/{key}/flags/", {"kind": things["flag"].kind.key}),
        "memory_list": ("get", f"{base}/memory/", None),
        "regret_list": ("get", f"{base}/regret/", None),
        "episodes_list": ("get", f"{base}/episodes/", None),
        "episodes_transcript": ("get", f"{base}/episodes/{run.episodes.first().pk}/", None),
        "flag_kinds_list": ("get", "/api/v1/flag-kinds/", None),
        "flags_list": ("get", "/api/v1/flags/", None),
        "flags_read": ("get", f"{flag}/", None),
        "flags_withdraw": ("post", f"{flag}/withdraw/", {"reason": "wrong"}),
        "flags_put_into_effect": ("post", f"{flag}/effect/", None),
        "flags_undo_effect": ("delete", f"{flag}/effect/", None),
        "review_queues_list": ("get", "/api/v1/review-queues/", None),
        "review_queues_items": ("get", f"{queue}/items/", None),
        "review_queues_labels": ("get", f"{queue}/labels/", None),
        "pools_list": ("get", "/api/v1/pools/", None),
        "pools_create": ("post", "/api/v1/pools/", {"name": "mine"}),
        "pools_read": ("get", f"{pool}/", None),
        "pools_items": ("get", f"{pool}/environments/", None),
        "pools_add": ("post", f"{pool}/environments/", {"run": run.pk, "keys": [key]}),
        "pools_act": ("post", f"{pool}/acts/stop/", None),
        "pools_download": ("get", f"{pool}/pool.tar", None),
        "pools_delete": ("delete", f"{pool}/", None),
    }
    return table[name]


def call(client: Any, name: str, run: Any) -> Any:
    """The answer to one operation."""
    method, path, body = operation(name, run)
    if method == "get":
        return client.get(path)
    if method == "upload":
        return client.post(path, {**body, "files": SimpleUploadedFile("lamps.txt", b"a lamp turns on")})
    return getattr(client, method)(path, data=body, content_type="application/json")
