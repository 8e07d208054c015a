"""What people do before pictures are taken: start runs; in one of them flags, a queue with a label, a pool, a play of one's own.

``python manage.py shell`` calls these in the process that has the product's database; everything goes through the services.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence


def start_runs(wanted: Sequence[tuple[str, Mapping[str, str]]]) -> str:
    """Queue a run of each preset with settings changed from it, in that order; their addresses, as JSON."""
    from django.conf import settings
    from django.urls import reverse

    from webapp.accounts.models import User
    from webapp.runs.configuration import read_config
    from webapp.runs.services import create_run, start_run

    person = User.objects.order_by("pk").first()
    assert person is not None
    made = []
    for preset, overrides in wanted:
        run = create_run(actor=person, config=read_config(preset=preset, overrides=dict(overrides)))
        start_run(actor=person, run_id=run.pk)
        made.append(settings.SPADEWORK_PUBLIC_URL + reverse("runs:page", args=[run.pk]))
    return json.dumps(made)


def stage(run_id: int, environment_key: str, seed: int) -> str:
    """Do it once; addresses by the name of the picture, as JSON."""
    from webapp.accounts.models import User
    from webapp.environments.models import Environment
    from webapp.environments.services import start_play
    from webapp.pools.services import add_environments, create_pool
    from webapp.review import services, services_queues, services_reviews
    from webapp.review.models import FlagKind
    from webapp.runs.checkpoint_files import stored_checkpoints
    from webapp.runs.models import Run
    from webapp.trying.services import start_trial

    person = User.objects.order_by("pk").first()
    assert person is not None
    run = Run.objects.get(pk=run_id)
    environments = list(Environment.objects.filter(run=run, superseded=False).order_by("-rollout", "slot"))
    chosen = next(one for one in environments if one.key == environment_key)
    kinds = {kind.key: kind.pk for kind in FlagKind.objects.all()}
    remarks = (
        ("hint-useless", 1, "It only repeats the rules."),
        ("trivial", 2, "The first guess wins in half of the plays."),
    )
    for one, (kind, severity, comment) in zip([chosen, *environments[:1]], remarks, strict=False):
        services.place_flag(
            actor=person, environment_id=one.pk, kind_id=kinds[kind], severity=severity, comment=comment
        )
    rules = services_queues.Rules(signals=(), threshold=0.0)
    queue = services_queues.create_queue(actor=person, run_id=run.pk, name="first look", rules=rules)
    services_queues.fill_queue(queue_id=queue.pk)
    first = services_reviews.claim_next(actor=person, queue_id=queue.pk)
    if first is not None:
        services_reviews.give_review(actor=person, item_id=first.pk, label=services_reviews.Label())
    item = services_reviews.claim_next(actor=person, queue_id=queue.pk)
    pool = create_pool(actor=person, name="first pool", licence="Apache-2.0")
    add_environments(actor=person, pool_id=pool.pk, environment_ids=[one.pk for one in environments[:12]])
    checkpoint = max(stored_checkpoints(run=run))
    trial = start_trial(actor=person, run=run, checkpoint=checkpoint)
    session = start_play(actor=person, environment=chosen, seed=seed)
    base = f"/runs/{run.pk}/"
    return json.dumps({
        "play": f"{base}play/{session.pk}/", "try-play": f"{base}try/{trial.pk}/?mode=play",
        "lineage": f"{base}environments/{chosen.key}/lineage/",
        "review-queue": f"/review/queues/{queue.pk}/", "review-item": f"/review/items/{item.pk}/" if item else "/review/queues/",
        "dashboard": "/review/", "pools": f"/pools/{pool.pk}/",
    })  # fmt: skip
