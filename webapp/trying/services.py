"""What people do when they try a checkpoint. Each function owns its transaction; views check the role first."""

from __future__ import annotations

from functools import partial

from django.db import connection, transaction
from django.utils import timezone

from webapp.accounts.audit import record
from webapp.accounts.models import User
from webapp.environments.models import Environment
from webapp.runs.errors import ActRefused
from webapp.runs.models import Run
from webapp.runs.storable import storable_text
from webapp.trying.files import why_not
from webapp.trying.jobs import alive, end_exchanges, send_hold
from webapp.trying.models import OPEN, Exchange, Trial

SESSIONS = 2  # as many as the worker of the queue "try" takes at a time
TEXT_CHARS = 20_000
TURNS_A_CONVERSATION = 50
EXCHANGES_A_SESSION = 500
SEED_LIMIT = 2**63
HOTTEST = 5.0
_LOCK = 7_421_001  # of PostgreSQL's advisory locks: two starts at once must not both pass the limit


@transaction.atomic
def start_trial(*, actor: User, run: Run, checkpoint: str) -> Trial:
    """Have a worker load the checkpoint. Raises ActRefused when it cannot be loaded or too many are open."""
    if run.deleted_at is not None:
        raise ActRefused(f"{run} has been deleted; restore it to try its checkpoints.")
    problem = why_not(run=run, name=checkpoint)
    if problem is not None:
        raise ActRefused(f"{problem.what} {problem.advice}")
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", [_LOCK])
    open_ones = list(alive().select_related("by", "run"))
    mine = next((one for one in open_ones if one.by_id == actor.pk), None)
    if mine is not None:
        raise ActRefused(f"You are trying {mine} of {mine.run}; end that session first, one at a time is the limit.")
    if len(open_ones) >= SESSIONS:
        people = ", ".join(sorted({one.by.get_username() for one in open_ones if one.by is not None}))
        raise ActRefused(
            f"{SESSIONS} checkpoints are being tried at the moment, which is the limit of this installation ({people}). "
            "Wait until one of them is ended; idle ones end by themselves."
        )
    trial = Trial.objects.create(by=actor, run=run, checkpoint=checkpoint)
    record(actor=actor, action="checkpoint.tried", target=run, detail={"checkpoint": checkpoint, "session": trial.pk})
    transaction.on_commit(partial(send_hold, trial.pk))
    return trial


@transaction.atomic
def say(
    *,
    actor: User,
    trial_id: int,
    text: str,
    system: str = "",
    temperature: float | None = None,
    reply_tokens: int | None = None,
) -> Exchange:
    """A message of the conversation that goes on. The system prompt counts when it is the first. Raises ActRefused."""
    trial = _own(actor, trial_id)
    said = storable_text(text.replace("\r\n", "\n")).strip()
    told = storable_text(system.replace("\r\n", "\n")).strip()
    if not said or len(said) > TEXT_CHARS or len(told) > TEXT_CHARS:
        raise ActRefused(f"A message has 1 to {TEXT_CHARS:,} characters, a system prompt at most as many.")
    if temperature is not None and not 0 < temperature <= HOTTEST:
        raise ActRefused(f"The temperature is a number above 0, at most {HOTTEST:g}.")
    longest = trial.facts.get("reply_tokens")
    if reply_tokens is not None and (reply_tokens < 1 or (longest and reply_tokens > longest)):
        raise ActRefused(f"New tokens: 1 to {longest}, which is what this model's context leaves.")
    so_far = trial.exchanges.filter(kind=Exchange.Kind.CHAT, conversation=trial.conversation).order_by("id")
    first = so_far.first()
    if so_far.count() >= TURNS_A_CONVERSATION:
        raise ActRefused(f"A conversation has {TURNS_A_CONVERSATION} messages at most; begin a new one.")
    exchange = Exchange.objects.create(
        trial=trial, kind=Exchange.Kind.CHAT, conversation=trial.conversation, system=first.system if first else told, text=said,
        temperature=temperature, reply_tokens=reply_tokens,
    )  # fmt: skip
    _touch(trial)
    return exchange


@transaction.atomic
def begin_conversation(*, actor: User, trial_id: int) -> Trial:
    """The next message opens a new conversation; the ones before stay to be read. Raises ActRefused."""
    trial = _own(actor, trial_id)
    if trial.exchanges.filter(kind=Exchange.Kind.CHAT, conversation=trial.conversation).exists():
        trial.conversation += 1
        trial.save(update_fields=["conversation"])
    _touch(trial)
    return trial


@transaction.atomic
def play(*, actor: User, trial_id: int, environment: Environment, seed: int, arm: str) -> Exchange:
    """Have the model play the environment, of whichever run. The same seed once more is another draw. Raises ActRefused."""
    trial = _own(actor, trial_id)
    if not 0 <= seed < SEED_LIMIT:
        raise ActRefused("A seed is a whole number from 0 to 2^63 − 1.")
    if arm not in ("unhinted", "hinted"):
        raise ActRefused("An environment is played unhinted or hinted.")
    if arm == "hinted" and not environment.hint_text:
        raise ActRefused(f"{environment.class_name} has no hint; let it be played unhinted.")
    before = trial.exchanges.filter(kind=Exchange.Kind.PLAY, environment=environment, seed=seed, arm=arm).count()
    exchange = Exchange.objects.create(
        trial=trial, kind=Exchange.Kind.PLAY, environment=environment, seed=seed, arm=arm, play=before
    )
    _touch(trial)
    return exchange


@transaction.atomic
def end_trial(*, actor: User, trial_id: int, as_admin: bool = False) -> Trial:
    """End the session; the worker ends the model's process at its next look. Raises ActRefused when it is not theirs or over."""
    trial = Trial.objects.select_for_update().get(pk=trial_id)
    if trial.by_id != actor.pk and not as_admin:
        raise ActRefused("This session is somebody else's.")
    if trial.state not in OPEN:
        raise ActRefused(f"This session is {trial.get_state_display()} already.")
    trial.state, trial.ended_at = Trial.State.ENDED, timezone.now()
    trial.failure = "" if trial.by_id == actor.pk else f"Ended by {actor.get_username()}."
    trial.save(update_fields=["state", "ended_at", "failure"])
    end_exchanges(trial_id=trial.pk, why="The session was ended before the answer.")
    record(
        actor=actor,
        action="checkpoint.trial_ended",
        target=trial.run,
        detail={"checkpoint": trial.checkpoint, "session": trial.pk},
    )
    return trial


def _own(actor: User, trial_id: int) -> Trial:
    """The person's own session, ready for a request. Raises ActRefused."""
    trial = alive().select_for_update(of=("self",)).filter(pk=trial_id, by=actor).first()
    if trial is None:
        raise ActRefused("This session is over; start another one.")
    if trial.state != Trial.State.READY:
        raise ActRefused("The model is not loaded yet; wait a moment.")
    if trial.exchanges.filter(state__in=(Exchange.State.WAITING, Exchange.State.RUNNING)).exists():
        raise ActRefused("The model still answers; wait for it, or end the session.")
    if trial.exchanges.count() >= EXCHANGES_A_SESSION:
        raise ActRefused(f"A session has {EXCHANGES_A_SESSION} messages and plays at most; start another one.")
    return trial


def _touch(trial: Trial) -> None:
    Trial.objects.filter(pk=trial.pk).update(touched_at=timezone.now())
