"""`python -m sandbox check | play FILE --seed N | examine FILE | bench`."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from sandbox import EnvironmentFault, HostError, Sandbox, SandboxUnavailable
from sandbox.bench.measure import run
from sandbox.self_check import check


def _play(file: Path, seed: int, max_turns: int) -> int:
    """Play one episode in the terminal; an empty line or end-of-file ends it."""
    with Sandbox() as sandbox:
        environment = sandbox.load(_source(file))
        (opened,) = sandbox.reset_many([(environment, seed, max_turns)])
        if isinstance(opened, EnvironmentFault):
            raise opened
        print(f"{environment.class_name}, seed {seed}, tier {sandbox.tier}\n\n{opened.observation}")
        for _ in range(max_turns):
            try:
                text = input("\n> ").strip()
            except EOFError:
                return 0
            if not text:
                return 0
            action = text if r"\boxed" in text else f"\\boxed{{{text}}}"
            (stepped,) = sandbox.step_many([(opened.episode, action)])
            if isinstance(stepped, EnvironmentFault):
                raise stepped
            print(f"\n{stepped.observation}\n[reward {stepped.reward:g}]")
            if stepped.terminated or stepped.truncated:
                print("terminated" if stepped.terminated else "truncated")
                return 0
    return 0


def _source(file: Path) -> str:
    """The program; `-` reads standard input. Bytes that are not UTF-8 stay visible to the check for it."""
    data = sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
    return data.decode("utf-8", errors="surrogateescape")


def _examine(file: Path) -> int:
    with Sandbox() as sandbox:
        report = sandbox.examine(_source(file))
    print(json.dumps(report.as_dict(), indent=2, ensure_ascii=False))
    return 0 if report.accepted else 1


def main() -> int:
    """Parse the command line and run it; the exit code says whether it went well."""
    parser = argparse.ArgumentParser(prog="python -m sandbox", description="Run generated environments in isolation.")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("check", help="say what this machine allows")
    play = commands.add_parser("play", help="play an environment in the terminal")
    play.add_argument("file", type=Path)
    play.add_argument("--seed", type=int, default=0)
    play.add_argument("--max-turns", type=int, default=25)
    examine = commands.add_parser("examine", help="run the gates and print the report as JSON")
    examine.add_argument("file", type=Path)
    bench = commands.add_parser("bench", help="time the sandbox against the same environments in process")
    bench.add_argument("--rounds", type=int, default=9, help="comparisons of 0.4 s per figure; the median counts")
    arguments = parser.parse_args()
    try:
        if arguments.command == "check":
            works, lines = check()
            print("\n".join(lines))
            return 0 if works else 1
        if arguments.command == "play":
            return _play(arguments.file, arguments.seed, arguments.max_turns)
        if arguments.command == "bench":
            run(arguments.rounds, lambda name, value: print(f"{name:<52}{value:>14,.3f}", flush=True))
            return 0
        return _examine(arguments.file)
    except EnvironmentFault as fault:
        print(f"the environment is at fault: {fault}\n{fault.traceback_text}", file=sys.stderr)
        return 1
    except (HostError, SandboxUnavailable, OSError) as error:
        print(error, file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
