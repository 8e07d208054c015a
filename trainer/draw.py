"""The designer's stand-in when a run plays a fixed pool: gates once at start, then sets drawn in the pool's order."""

from __future__ import annotations

from sandbox import Report
from trainer.artifacts import write_frozen
from trainer.designer import Designed
from trainer.errors import UserError
from trainer.events import EnvironmentAdded, Warned
from trainer.fixed_pool import FixedPool, FrozenEnvironment, candidate_of
from trainer.session import Session
from trainer.state import Environment

_EXAMINED_AT_ONCE = 16  # between two looks at the commands


def admit_pool(session: Session) -> None:
    """Examine every environment of the pool by the gates; those that fail are left out with a warning.

    Does nothing when the designer writes the environments. Raises `UserError` when none passes, `Cancelled` when the run is to stop.
    """
    pool = session.state.pool
    if pool is None:
        return
    everyone = [environment for _, environment in sorted(pool.environments.items())]
    rejected: dict[str, str] = {}
    for start in range(0, len(everyone), _EXAMINED_AT_ONCE):
        session.control.safe_point()
        batch = everyone[start : start + _EXAMINED_AT_ONCE]
        reports = session.pool.examine([environment.code for environment in batch])
        for environment, report in zip(batch, reports, strict=True):
            if report.accepted:
                session.admitted[environment.id] = report
                continue
            rejected[environment.id] = _reason(report)
            session.log.emit(
                Warned(message=f"{environment.id} of the pool is left out: {_reason(report)}"[:500], where="pool")
            )
    pool.reject(rejected)
    if len(rejected) == len(everyone):
        raise UserError(
            f"pool.path: none of the {len(everyone)} environments of {pool.source} passes the gates "
            f"(first: {next(iter(rejected.values()))})"
        )


def draw_environments(session: Session, rollout: int) -> list[Designed]:
    """The next set of the pool with the hints it was stored with. There is no design to train."""
    pool = session.state.pool
    assert pool is not None, "only called for runs on a fixed pool"
    return [
        _drawn(session, pool, rollout, slot, e)
        for slot, e in enumerate(pool.draw(session.config.schedule.environments))
    ]


def _drawn(session: Session, pool: FixedPool, rollout: int, slot: int, frozen: FrozenEnvironment) -> Designed:
    report = session.admitted[frozen.id]
    environment = Environment(
        key=f"r{rollout:04d}-s{slot:02d}",
        candidate=candidate_of(frozen),
        slot=slot,
        skill=frozen.skill,
        class_name=report.class_name or "",
        code=frozen.code,
        document=None,
        hint=frozen.hint,
    )
    added = EnvironmentAdded(
        environment=environment.key,
        candidate=environment.candidate,
        slot=slot,
        skill=environment.skill,
        class_name=environment.class_name,
        code=environment.code,
        document=None,
        examples=[],
        counter_examples=[],
        sandbox_tier=report.tier,
        measures=dict(report.measures),
    )
    session.log.emit(added)
    write_frozen(session.run, added, {"pool": pool.source, "id": frozen.id, "document": frozen.document})
    return Designed(environment, None)


def _reason(report: Report) -> str:
    failed = next((stage for stage in report.stages if stage.outcome == "failed"), None)
    return f"{failed.stage}: {failed.message}" if failed else "no verdict"
