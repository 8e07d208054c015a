"""Command line of the trainer: `python -m trainer run|resume|fork|try|validate|show-config|corpus|pool|starter|experiments`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from trainer.assignments import assignments
from trainer.config import RunConfig
from trainer.errors import TrainerError, UserError
from trainer.presets import load_preset, preset_names, validated, with_overrides
from trainer.rollout.openmp import wait_passively

if TYPE_CHECKING:
    from trainer.rundir import RunDirectory

_EPILOG = "exit codes: 0 completed or stopped, 1 a bug, 2 wrong input, 3 the machinery failed, 4 a limit was reached"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    options = _parser().parse_args(arguments)
    wait_passively()  # before any command imports torch
    try:
        code = options.command(options)
    except TrainerError as error:
        print(f"trainer: {error.owner}: {error}", file=sys.stderr)
        from trainer.exit_codes import EXIT_CODES

        return EXIT_CODES[error.owner]
    return int(code)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m trainer", description=__doc__, epilog=_EPILOG)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    run = commands.add_parser("run", help="start a run in a new directory")
    run.add_argument("run_dir", type=Path, metavar="RUN_DIR")
    source = run.add_mutually_exclusive_group()
    source.add_argument("--config", type=Path, help="settings file (JSON), as `show-config` prints it")
    source.add_argument("--preset", choices=preset_names(), metavar="NAME", help="a preset instead of a file")
    run.add_argument("--set", action="append", default=[], metavar="a.b=VALUE", help="change one setting")
    run.set_defaults(command=_run)

    resume = commands.add_parser("resume", help="go on from the newest whole checkpoint")
    resume.add_argument("run_dir", type=Path, metavar="RUN_DIR")
    resume.set_defaults(command=_resume)

    fork = commands.add_parser("fork", help="start a run from a checkpoint of another one, with changed settings")
    fork.add_argument("source", type=Path, metavar="SOURCE_RUN")
    fork.add_argument("run_dir", type=Path, metavar="DEST")
    fork.add_argument(
        "--checkpoint", default="", metavar="NAME", help="its number, best or latest (the newest whole one)"
    )
    settings = fork.add_mutually_exclusive_group()
    settings.add_argument("--config", type=Path, help="settings file (JSON) instead of the source's settings")
    settings.add_argument(
        "--preset", choices=preset_names(), metavar="NAME", help="settings of a preset instead of the source's"
    )
    fork.add_argument("--set", action="append", default=[], metavar="a.b=VALUE", help="change one setting")
    fork.add_argument("--prepare", action="store_true", help="only make the directory; `run DEST` starts it")
    fork.set_defaults(command=_fork)

    trying = commands.add_parser("try", help="chat with a checkpoint and watch it play; JSON lines in and out")
    trying.add_argument("run_dir", type=Path, metavar="RUN_DIR")
    trying.add_argument("--checkpoint", default="latest", metavar="NAME", help="its number, best or latest (latest)")
    trying.add_argument(
        "--pool",
        default="",
        metavar="PATH",
        help="play its programs instead of the run's: a JSONL file, an unpacked pool, builtin:demo",
    )
    trying.add_argument("--device", choices=("auto", "cpu", "cuda"), default="", help="instead of engine.device")
    trying.add_argument("--threads", type=int, default=0, metavar="N", help="CPU threads; 0 measures (0)")
    trying.add_argument("--memory-bytes", type=int, default=0, metavar="N", help="give up beyond so much memory (CPU)")
    trying.add_argument("--nice", type=int, default=0, metavar="N", help="give way to other processes (0)")
    trying.set_defaults(command=_try)

    validate = commands.add_parser("validate", help="check a settings file")
    validate.add_argument("file", type=Path, metavar="FILE")
    validate.set_defaults(command=_validate)

    show = commands.add_parser("show-config", help="print a preset as a settings file")
    show.add_argument("preset", choices=preset_names(), metavar="PRESET", help=", ".join(preset_names()))
    show.add_argument("--set", action="append", default=[], metavar="a.b=VALUE", help="change one setting")
    show.set_defaults(command=_show)

    corpus = commands.add_parser("corpus", help="say what of a corpus is usable and show its first documents")
    corpus.add_argument("source", metavar="SOURCE", help="file, folder or builtin:demo, as corpus.source takes it")
    corpus.add_argument("--json", action="store_true", help="one line of JSON")
    corpus.add_argument("--memory-bytes", type=int, default=0, metavar="N", help="give up beyond so much memory")
    corpus.set_defaults(command=_corpus)

    pool = commands.add_parser("pool", help="write a fixed pool of environments with an untrained model")
    pool_commands = pool.add_subparsers(required=True, metavar="COMMAND")
    write = pool_commands.add_parser("write", help="design and examine environments and store them with their hints")
    write.add_argument("file", type=Path, metavar="FILE", help="JSONL file; an interrupted one is continued")
    write.add_argument(
        "--preset", choices=preset_names(), metavar="NAME", default="demo", help="settings of the designer (demo)"
    )
    write.add_argument("--set", action="append", default=[], metavar="a.b=VALUE", help="change one setting")
    write.add_argument("--environments", type=int, default=90, help="stop when there are at least so many (90)")
    write.set_defaults(command=_write_pool)

    starter = commands.add_parser("starter", help="make or measure the built-in model", add_help=False)
    starter.add_argument("arguments", nargs=argparse.REMAINDER)
    starter.set_defaults(command=_starter)

    experiments = commands.add_parser("experiments", help="compare arms on fixed evaluation sets", add_help=False)
    experiments.add_argument("arguments", nargs=argparse.REMAINDER)
    experiments.set_defaults(command=_experiments)
    return parser


def _run(options: argparse.Namespace) -> int:
    from trainer.run import create
    from trainer.rundir import RunDirectory

    given = options.config is not None or options.preset is not None or options.set
    run = RunDirectory(options.run_dir)
    if run.config.exists() and not given:
        if run.attempts.exists():
            raise UserError(f"{run.root} has been started before; `resume` goes on with it")
    else:
        config = read_settings(options.config) if options.config else load_preset(options.preset or "demo")
        run = create(options.run_dir, with_overrides(config, assignments(options.set)))
    return _attempt(run)


def _resume(options: argparse.Namespace) -> int:
    from trainer.rundir import RunDirectory

    return _attempt(RunDirectory(options.run_dir))


def _fork(options: argparse.Namespace) -> int:
    from trainer.creation import read_config
    from trainer.fork import fork
    from trainer.rundir import RunDirectory

    if options.config:
        config = read_settings(options.config)
    else:
        config = load_preset(options.preset) if options.preset else read_config(RunDirectory(options.source))
    config = with_overrides(config, assignments(options.set))
    made = fork(options.source, options.run_dir, config=config, checkpoint=options.checkpoint)
    print(f"{options.run_dir}: fork of {made.run} at checkpoint {made.checkpoint}")
    for name, (before, after) in made.changed.items():
        print(f"  changed: {name} {before} -> {after}")
    print(f"  kept: {', '.join(made.kept)}")
    print(f"  reset: {', '.join(made.reset)}")
    return 0 if options.prepare else _attempt(RunDirectory(options.run_dir))


def _try(options: argparse.Namespace) -> int:
    from trainer.trying.talk import try_checkpoint

    return try_checkpoint(
        options.run_dir,
        checkpoint=options.checkpoint,
        pool=options.pool,
        device=options.device,
        threads=options.threads,
        memory_bytes=options.memory_bytes,
        nice=options.nice,
    )


def _attempt(run: RunDirectory) -> int:
    from trainer.engines import open_engines
    from trainer.progress import Progress
    from trainer.run import attempt

    with Progress(run) as progress:
        return attempt(run, open_engines, listen=progress.listen)


def _validate(options: argparse.Namespace) -> int:
    config = read_settings(options.file)
    print(f"{options.file}: fine ({config.schedule.rollouts} rollouts, {config.schedule.environments} environments)")
    for warning in config.warnings():
        print(f"warning: {warning}")
    return 0


def _show(options: argparse.Namespace) -> int:
    config = with_overrides(load_preset(options.preset), assignments(options.set))
    print(json.dumps(config.model_dump(mode="json"), indent=2))
    return 0


def _corpus(options: argparse.Namespace) -> int:
    from trainer.address_space import limit_memory, ran_short
    from trainer.config import CorpusConfig
    from trainer.corpus_check import check_corpus
    from trainer.errors import LimitError, TrainerError

    if options.memory_bytes:
        limit_memory(options.memory_bytes)
    try:
        report = check_corpus(CorpusConfig(source=options.source))
    except TrainerError:
        raise
    except Exception as error:
        if not ran_short(error, options.memory_bytes or 0):
            raise
        raise LimitError(f"{options.source} takes more memory than --memory-bytes {options.memory_bytes}") from error
    if options.json:
        print(report.as_json())
        return 0
    print(
        f"{options.source}: {report.documents} usable documents, {report.words} words, longest {report.longest_words}"
    )
    for reason, count in report.skipped.items():
        print(f"  skipped: {count} {reason}")
    for reason, place in report.places:
        print(f"    {place}: {reason}")
    for document in report.preview:
        print(f"  {document['id']!r}: {document['title']!r}, {document['words']} words")
    return 0


def _write_pool(options: argparse.Namespace) -> int:
    from trainer.engines import open_engines
    from trainer.write_pool import write_pool

    config = with_overrides(load_preset(options.preset), assignments(options.set))
    written = write_pool(options.file, config, open_engines, environments=options.environments)
    print(f"{options.file}: {written.environments} environments, {written.added} of them new")
    return 0


def _starter(options: argparse.Namespace) -> int:
    from trainer.starter.__main__ import main as starter_main

    return starter_main(options.arguments)


def _experiments(options: argparse.Namespace) -> int:
    from trainer.experiments.__main__ import main as experiments_main

    return experiments_main(options.arguments)


def read_settings(path: Path) -> RunConfig:
    """Settings of a JSON file: bare, or as the "config" of a run directory's config.json. Raises `UserError`."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from error
    except ValueError as error:
        raise UserError(f"{path} is not JSON: {error}") from error
    if not isinstance(values, dict):
        raise UserError(f"{path} must hold one JSON object")
    return validated(values["config"] if isinstance(values.get("config"), dict) else values, where=str(path))


if __name__ == "__main__":
    sys.exit(main())
