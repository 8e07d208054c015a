"""``python -m webapp.stack``: up, down, status, env, manage, backup, restore, throwaway."""

import argparse
import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TextIO

from webapp.stack import backup, control, preflight
from webapp.stack.backup_file import unpack
from webapp.stack.console import Console
from webapp.stack.errors import StackError
from webapp.stack.paths import REPOSITORY, Home
from webapp.stack.restore import restore
from webapp.stack.throwaway import throwaway_services
from webapp.stack.up import PARTS, up


def main() -> int:
    """Parse the command line; 0, or 1 with one line on stderr that says what to do."""
    arguments = _parser().parse_args()
    try:
        preflight.check_platform()
        if arguments.command == "throwaway":
            return _throwaway(arguments.program)
        home = Home.from_environment()
        home.create()
        if arguments.command == "status":
            code, text = control.status(home)
            print(text)
            return code
        if arguments.command == "manage":
            return control.manage(home, arguments.arguments)
        if arguments.command == "backup":
            target = Path(arguments.file).absolute()
            manifest = backup.backup(home, target, checkpoints=arguments.checkpoints, say=_say)
            print("\n".join(backup.summary(manifest, target)))
        elif arguments.command == "restore":
            _restore(home, arguments)
        elif arguments.command == "env":
            print(control.environment_lines(home))
        elif arguments.command == "down":
            print("stopped" if control.stop(home) else "was not running")
        elif arguments.detach:
            if arguments.only:
                raise StackError("--only goes with the foreground form of `up`, not with --detach")
            control.start_detached(home, say=lambda text: print(text, flush=True))
        elif arguments.notify_fd is not None:
            _up_in_background(home, arguments.notify_fd)
        else:
            up(home, demo=arguments.demo, console=Console(home.logs), parts=arguments.only or PARTS)
    except StackError as error:
        print(f"spadework: {error}", file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m webapp.stack", description="Runs Spadework's services on this machine."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    starting = commands.add_parser("up", help="start everything; Ctrl-C stops it")
    how = starting.add_mutually_exclusive_group()
    how.add_argument("--demo", action="store_true", help="start a demo run and print a link that signs in")
    how.add_argument("--detach", action="store_true", help="return when it is up; `down` stops it")
    how.add_argument("--notify-fd", type=int, help=argparse.SUPPRESS)
    starting.add_argument(
        "--only",
        choices=PARTS,
        action="append",
        help="only this part of the application; may be repeated (for several machines)",
    )
    commands.add_parser("down", help="stop what `up` started")
    commands.add_parser("status", help="what runs (exit code 0: all up, 1: not all, 3: nothing)")
    commands.add_parser("env", help="shell lines that lead other programs to the services")
    keep = commands.add_parser("backup", help="write database and data directory into one file, while runs go on")
    keep.add_argument("file", help="the backup (.tar, or .tar.gz: smaller and slower); must not exist")
    keep.add_argument(
        "--checkpoints",
        choices=backup.CHECKPOINTS,
        default="all",
        help="which of each run (default: all). newest: enough to resume; none: only to look at",
    )
    bring_back = commands.add_parser("restore", help="put a backup in place; the stack must be down")
    bring_back.add_argument("file", help="the backup")
    how_to = bring_back.add_mutually_exclusive_group()
    how_to.add_argument("--check", action="store_true", help="only read it from end to end and compare the checksums")
    how_to.add_argument("--replace", action="store_true", help="give up the runs and people that are here")
    manage = commands.add_parser("manage", help="run manage.py on the running stack, as in: manage demo_link")
    manage.add_argument("arguments", nargs=argparse.REMAINDER)
    throwaway = commands.add_parser(
        "throwaway", help="run a command with a fresh PostgreSQL and Valkey that vanish after it"
    )
    throwaway.add_argument("program", nargs=argparse.REMAINDER)
    return parser


def _say(text: str) -> None:
    print(f"spadework: {text}", file=sys.stderr)


def _restore(home: Home, arguments: argparse.Namespace) -> None:
    source = Path(arguments.file).absolute()
    if arguments.check:
        manifest = unpack(source, None)
        print(f"{source} is whole: made {manifest.made_at} of {manifest.home}, {len(manifest.files)} files")
        return
    manifest = restore(home, source, replace=arguments.replace, say=_say)
    print(f"restored the backup of {manifest.made_at} into {home.root}; `make up` starts it")


def _up_in_background(home: Home, notify_fd: int) -> None:
    """The background half of `up --detach`: progress as JSON lines to the one who waits, until ready or failed."""
    with os.fdopen(notify_fd, "w", encoding="utf-8", buffering=1) as pipe:

        def ready(url: str) -> None:
            _tell(pipe, {"ready": url})
            pipe.close()

        try:
            up(home, demo=False, console=_Telling(home, pipe), on_ready=ready)
        except StackError as error:
            _tell(pipe, {"error": str(error)})
            raise


class _Telling(Console):
    """Also passes the supervisor's own lines on, as long as somebody waits for them."""

    def __init__(self, home: Home, pipe: TextIO) -> None:
        super().__init__(home.logs, quiet=True)
        self._pipe = pipe

    def say(self, text: str) -> None:
        super().say(text)
        _tell(self._pipe, {"say": text})


def _tell(pipe: TextIO, message: dict[str, str]) -> None:
    if pipe.closed:
        return
    with contextlib.suppress(BrokenPipeError):  # nobody waits any more; the stack itself goes on
        pipe.write(json.dumps(message) + "\n")


def _throwaway(program: list[str]) -> int:
    command = program[1:] if program[:1] == ["--"] else program
    if not command:
        raise StackError("throwaway needs a command to run, as in: throwaway -- python manage.py check")
    with throwaway_services() as services:
        environment = {
            **os.environ,
            **services,
            "SPADEWORK_PUBLIC_URL": "http://127.0.0.1:8400",
            "DJANGO_SETTINGS_MODULE": "webapp.settings",
        }
        return subprocess.run(command, env=environment, cwd=REPOSITORY, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
