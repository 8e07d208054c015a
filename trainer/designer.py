"""The designer's part of a rollout: write one environment per slot, through the gates, in rounds over all open slots (spec 2 and 4)."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from sandbox import Report
from trainer.artifacts import write_candidate, write_environment
from trainer.audit import Verdict, audit
from trainer.corpus import Document
from trainer.errors import UserError
from trainer.events import CandidateJudged, DocumentUsed, EnvironmentAdded, StageResult
from trainer.extract import Extracted, extract_program
from trainer.memory import Recall
from trainer.policy import Answer, Question
from trainer.prompts import ShownDocument
from trainer.seeds import stable_seed
from trainer.session import Session
from trainer.skills import active_skills, slot_skill
from trainer.state import DesignSample, Environment

_AUDIT_OUTCOMES: dict[Verdict, Literal["passed", "failed", "unverifiable"]] = {
    "sound": "passed",
    "broken": "failed",
    "unreadable": "unverifiable",
}


@dataclass(frozen=True, slots=True)
class Draft:
    """One design attempt before and after the policy answered."""

    slot: int
    attempt: int
    environment: str
    skill: str
    document: Document | None
    recall: Recall

    @property
    def candidate(self) -> str:
        return f"{self.environment}-a{self.attempt}"


@dataclass(frozen=True, slots=True)
class Designed:
    """An accepted design: the environment and the sample that waits for its reward (None: nobody wrote it in this run)."""

    environment: Environment
    sample: DesignSample | None


def design_environments(session: Session, rollout: int) -> list[Designed]:
    """Fill as many slots as `designer.attempts` tries allow. Slots that fail all tries are left out.

    Raises `UserError` when no prompt at all fitted the context.

    Every round samples all open slots in one batch and examines the programs in the sandbox; every candidate becomes an event.
    """
    schedule = session.config.schedule
    skills = active_skills(
        schedule.skills, active=schedule.active_skills, rollout=rollout, interval=schedule.regenerate_every
    )
    session.record.slots = schedule.environments
    done: dict[int, Designed] = {}
    longest_prompt, no_room = 0, True
    for attempt in range(1, session.config.designer.attempts + 1):
        open_slots = [slot for slot in range(schedule.environments) if slot not in done]
        if not open_slots:
            break
        session.control.safe_point()
        with session.meter.running("design", total=schedule.environments):
            drafts = [_draft(session, rollout, slot, attempt, slot_skill(skills, slot)) for slot in open_slots]
            answers = session.policy.ask([_question(session, draft) for draft in drafts])
        longest_prompt = max(longest_prompt, *(len(answer.prompt_ids) for answer in answers))
        no_room = no_room and all(answer.no_room for answer in answers)
        with session.meter.running("gates", total=schedule.environments):
            for designed in _judge(session, rollout, drafts, answers):
                done[designed.environment.slot] = designed
        session.meter.advance("design", len(done))
        session.meter.advance("gates", len(done))
    session.meter.finish("design")
    session.meter.finish("gates")
    if no_room:
        raise UserError(
            f"model.context_tokens {session.config.model.context_tokens} is too small: no designer prompt left room for a reply "
            f"(the longest takes {longest_prompt} tokens). Raise model.context_tokens, or lower corpus.max_words or memory.examples."
        )
    return [done[slot] for slot in sorted(done)]


def _draft(session: Session, rollout: int, slot: int, attempt: int, skill: str) -> Draft:
    """A fresh document and fresh memory examples for one attempt."""
    key = f"r{rollout:04d}-s{slot:02d}"
    rng = random.Random(stable_seed(session.config.seed, "memory", key, attempt))  # noqa: S311 - reproducible, no secret
    document = session.state.corpus.draw() if session.state.corpus else None
    if document is not None and document.id not in session.shown_documents:
        session.shown_documents.add(document.id)
        session.log.emit(
            DocumentUsed(
                document=document.id,
                title=document.title,
                text=document.text,
                words=document.words,
                metadata=document.metadata,
            )
        )
    return Draft(slot, attempt, key, skill, document, session.state.memory.recall(skill, rng=rng))


def _question(session: Session, draft: Draft) -> Question:
    config = session.config
    document = None if draft.document is None else ShownDocument(draft.document.title, draft.document.text)
    messages = session.prompts.design(
        skill=draft.skill,
        document=document,
        examples=draft.recall.shown_examples(),
        counter_examples=draft.recall.shown_counter_examples(),
        max_turns=config.agent.max_turns,
    )
    seed = stable_seed(config.seed, "design", draft.environment, draft.attempt)
    return Question(messages, config.designer.max_tokens, config.designer.temperature, seed)


def _judge(session: Session, rollout: int, drafts: Sequence[Draft], answers: Sequence[Answer]) -> list[Designed]:
    """Run the gates over one round of candidates; returns the accepted ones."""
    programs = [_program(session, answer) for answer in answers]
    runnable = [i for i, program in enumerate(programs) if not program.problem]
    reports = dict(zip(runnable, session.pool.examine([programs[i].code for i in runnable]), strict=True))
    audits = _audit(session, drafts, programs, [i for i in runnable if reports[i].accepted])
    designed: list[Designed] = []
    for i, (draft, answer, program) in enumerate(zip(drafts, answers, programs, strict=True)):
        judged = _judged(draft, answer, program, reports.get(i), audits.get(i))
        session.log.emit(judged)
        session.record.candidates.append(judged)
        session.tensors.add(
            draft.candidate,
            "designer",
            prompt_ids=answer.prompt_ids,
            token_ids=answer.token_ids,
            logprobs=answer.logprobs,
        )
        write_candidate(session.run, judged)
        if judged.accepted:
            designed.append(_accepted(session, rollout, draft, answer, judged, reports[i]))
    return designed


def _program(session: Session, answer: Answer) -> Extracted:
    if answer.error:
        return Extracted(code="", problem=answer.error)
    found = extract_program(answer.text, source_bytes=session.config.gates.source_bytes)
    if found.problem and answer.finish == "length":
        return Extracted(found.code, f"{found.problem}; the reply was cut at designer.max_tokens")
    return found


def _audit(
    session: Session, drafts: Sequence[Draft], programs: Sequence[Extracted], accepted: Sequence[int]
) -> dict[int, StageResult]:
    """Outcome of the audit gate for the candidates that passed the sandbox; empty when the gate is off."""
    if not session.config.gates.audit or not accepted:
        return {}
    seeds = [stable_seed(session.config.seed, "audit", drafts[i].candidate) for i in accepted]
    results: dict[int, StageResult] = {}
    audited = audit(session.policy, [programs[i].code for i in accepted], seeds, config=session.config.hint)
    for i, one in zip(accepted, audited, strict=True):
        outcome = _AUDIT_OUTCOMES[one.verdict]
        message = one.answer.error or one.answer.text[-500:]
        results[i] = StageResult(stage="audit", outcome=outcome, message=message)
        session.record.unreadable_audits += one.verdict == "unreadable"
        session.tensors.add(
            f"{drafts[i].candidate}/audit",
            "audit",
            prompt_ids=one.answer.prompt_ids,
            token_ids=one.answer.token_ids,
            logprobs=one.answer.logprobs,
        )
    return results


def _judged(
    draft: Draft, answer: Answer, program: Extracted, report: Report | None, audited: StageResult | None
) -> CandidateJudged:
    """The event of one candidate: all stages in order, the first failure names the stage."""
    extract = StageResult(
        stage="extract",
        outcome="failed" if program.problem else "passed",
        message=program.problem,
        measures={"repaired_lines": program.repaired_lines} if program.repaired_lines else {},
    )
    stages = [extract, *(StageResult.model_validate(stage.as_dict()) for stage in (report.stages if report else ()))]
    if audited is not None:
        stages.append(audited)
    failed = next((stage for stage in stages if stage.outcome == "failed"), None)
    return CandidateJudged(
        environment=draft.environment,
        candidate=draft.candidate,
        slot=draft.slot,
        attempt=draft.attempt,
        skill=draft.skill,
        document=None if draft.document is None else draft.document.id,
        examples=[r.environment for r in draft.recall.examples],
        counter_examples=[r.environment for r in draft.recall.counter_examples],
        prompt=answer.prompt,
        reply=answer.text,
        code=program.code,
        class_name=report.class_name if report else None,
        prompt_tokens=len(answer.prompt_ids),
        reply_tokens=len(answer.token_ids),
        finish_reason=answer.finish,
        accepted=failed is None,
        failed_stage=failed.stage if failed else None,
        reason=failed.message if failed else "",
        stages=stages,
    )


def _accepted(
    session: Session, rollout: int, draft: Draft, answer: Answer, judged: CandidateJudged, report: Report
) -> Designed:
    environment = Environment(
        key=draft.environment,
        candidate=draft.candidate,
        slot=draft.slot,
        skill=draft.skill,
        class_name=report.class_name or "",
        code=judged.code,
        document=judged.document,
    )
    added = EnvironmentAdded(
        environment=environment.key,
        candidate=environment.candidate,
        slot=environment.slot,
        skill=environment.skill,
        class_name=environment.class_name,
        code=environment.code,
        document=environment.document,
        examples=judged.examples,
        counter_examples=judged.counter_examples,
        sandbox_tier=report.tier,
        measures=dict(report.measures),
    )
    session.log.emit(added)
    write_environment(session.run, added, judged)
    sample = DesignSample(
        environment=environment.key,
        skill=environment.skill,
        rollout=rollout,
        prompt_ids=answer.prompt_ids,
        token_ids=answer.token_ids,
        logprobs=answer.logprobs,
        temperature=session.config.designer.temperature,
    )
    return Designed(environment, sample)
