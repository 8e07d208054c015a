"""What people do with environments: play them, have the gates judge them again, edit them into variants.

Each function owns its transaction and its audit entry; views check the role first. The sandbox works in a worker.
"""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from hashlib import sha256

from django.db import transaction
from django.db.models import Max
from django.utils import timezone

from webapp.accounts.audit import record
from webapp.accounts.models import User
from webapp.environments.jobs import GATES_TASK, PLAY_TASK, SESSION_EXPIRES_S, send
from webapp.environments.models import Environment, GateRun, PlaySession, Variant
from webapp.runs.configuration import parse_config
from webapp.runs.errors import ActRefused
from webapp.runs.storable import storable_text

OPEN_SESSIONS_A_PERSON = 3
WAITING_GATES_A_PERSON = 5
VARIANTS_AN_ENVIRONMENT = 200
ACTION_CHARS = 2_000
NOTE_CHARS = 500
SEED_LIMIT = 2**63


@transaction.atomic
def start_play(*, actor: User, environment: Environment, seed: int, variant: Variant | None = None) -> PlaySession:
    """A new play of the environment (or of an edited variant of it) with this seed. Raises ActRefused."""
    if not 0 <= seed < SEED_LIMIT:
        raise ActRefused("A seed is a whole number from 0 to 2^63 − 1.")
    User.objects.select_for_update(no_key=True).get(pk=actor.pk)  # two clicks at once must not both pass the limit
    alive_since = timezone.now() - timedelta(seconds=SESSION_EXPIRES_S)
    mine = PlaySession.objects.filter(by=actor, state=PlaySession.State.OPEN, touched_at__gte=alive_since)
    if mine.count() >= OPEN_SESSIONS_A_PERSON:
        raise ActRefused(f"You have {OPEN_SESSIONS_A_PERSON} plays open, which is the limit. Finish one or give it up.")
    config = parse_config(environment.run.config)
    session = PlaySession.objects.create(
        by=actor, environment=environment, variant=variant, seed=seed, max_turns=config.agent.max_turns
    )
    detail = {"seed": str(seed), "variant": variant.number if variant else None, "session": session.pk}
    record(actor=actor, action="environment.played", target=environment, detail=detail)
    transaction.on_commit(partial(send, PLAY_TASK, session.pk))
    return session


@transaction.atomic
def act_in_play(*, actor: User, session_id: int, text: str) -> PlaySession:
    """Take an action; what is not boxed yet is, as the agent's actions are. Raises ActRefused."""
    session = _own_open_session(actor, session_id)
    if session.is_waiting:
        raise ActRefused("The environment has not answered your last action yet.")
    action = text.strip()
    if not action or len(action) > ACTION_CHARS:
        raise ActRefused(f"An action has 1 to {ACTION_CHARS} characters.")
    action = storable_text(action if r"\boxed" in action else f"\\boxed{{{action}}}")
    session.actions = [*session.actions, action]
    session.touched_at = timezone.now()
    session.save(update_fields=["actions", "touched_at"])
    transaction.on_commit(partial(send, PLAY_TASK, session.pk))
    return session


@transaction.atomic
def retry_play(*, actor: User, session_id: int) -> PlaySession:
    """Try again after our own side failed; the episode is rebuilt from seed and actions. Raises ActRefused."""
    session = _own_open_session(actor, session_id)
    session.failure = ""
    session.touched_at = timezone.now()
    session.save(update_fields=["failure", "touched_at"])
    transaction.on_commit(partial(send, PLAY_TASK, session.pk))
    return session


@transaction.atomic
def close_play(*, actor: User, session_id: int) -> PlaySession:
    """Give a play up. Raises ActRefused when it is somebody else's or over."""
    session = _own_open_session(actor, session_id)
    session.state = PlaySession.State.CLOSED
    session.save(update_fields=["state"])
    return session


def _own_open_session(actor: User, session_id: int) -> PlaySession:
    session = PlaySession.objects.select_for_update(no_key=True).filter(pk=session_id).first()
    if session is None or session.by_id != actor.pk:
        raise ActRefused("This play is somebody else's; start your own with the same seed.")
    if session.state == PlaySession.State.OPEN and timezone.now() - session.touched_at > timedelta(
        seconds=SESSION_EXPIRES_S
    ):
        session.state = PlaySession.State.EXPIRED
    if session.state != PlaySession.State.OPEN:
        raise ActRefused(f"This play is {session.get_state_display()}; start another one with the same seed.")
    return session


@transaction.atomic
def rerun_gates(*, actor: User, environment: Environment, variant: Variant | None = None) -> GateRun:
    """Have the gates judge the program once more. Raises ActRefused."""
    User.objects.select_for_update(no_key=True).get(pk=actor.pk)
    if GateRun.objects.filter(by=actor, state=GateRun.State.WAITING).count() >= WAITING_GATES_A_PERSON:
        raise ActRefused(f"{WAITING_GATES_A_PERSON} of your gate runs still wait for a worker. Wait for one to end.")
    job = GateRun.objects.create(by=actor, environment=environment, variant=variant)
    detail = {"gate_run": job.pk, "variant": variant.number if variant else None}
    record(actor=actor, action="environment.gates_rerun", target=environment, detail=detail)
    transaction.on_commit(partial(send, GATES_TASK, job.pk))
    return job


@transaction.atomic
def create_variant(
    *, actor: User, environment: Environment, code: str, note: str = "", parent: Variant | None = None
) -> Variant:
    """An edited copy of the program, sent through all gates. It never enters a run. Raises ActRefused."""
    Environment.objects.select_for_update(no_key=True).get(pk=environment.pk)  # numbers without gaps or twins
    code = storable_text(code.replace("\r\n", "\n"))
    limit = parse_config(environment.run.config).gates.source_bytes
    if not code.strip() or len(code.encode()) > limit:
        raise ActRefused(f"The program must have 1 to {limit:,} bytes; it has {len(code.encode()):,}.")
    digest = sha256(code.encode()).hexdigest()
    if digest == (parent.code_digest if parent else environment.code_digest):
        raise ActRefused("Nothing was changed. To judge the same program again, run the gates again.")
    newest = environment.variants.aggregate(newest=Max("number"))["newest"] or 0
    if newest >= VARIANTS_AN_ENVIRONMENT:
        raise ActRefused(f"This environment has {VARIANTS_AN_ENVIRONMENT} variants, which is the limit.")
    variant = Variant.objects.create(
        environment=environment, parent=parent, number=newest + 1, code=code, code_digest=digest,
        note=storable_text(" ".join(note.split())[:NOTE_CHARS]), by=actor,
    )  # fmt: skip
    record(actor=actor, action="environment.forked", target=environment, detail={"variant": variant.number})
    rerun_gates(actor=actor, environment=environment, variant=variant)
    return variant
