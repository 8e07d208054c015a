"""One generated program inside its worker: compile, find the class, one fresh module and instance per episode.

The module body runs again for every episode (about 30 microseconds for an ordinary program), with a `random` module
and a numpy generator of the episode's own. So neither module-level state nor the global generators leak from one
interleaved episode into another.
"""

from __future__ import annotations

import ast
import linecache
import sys
import types
from dataclasses import dataclass
from typing import Any

from sandbox.inside import checks, modules

FILE_NAME = "<environment>"
MODULE_NAME = "environment"


class ParseFailure(Exception):
    """The source does not compile or has not exactly one environment class."""

    def __init__(self, message: str, line: int | None = None) -> None:
        """Keep the line of the source, if known."""
        super().__init__(message)
        self.message = message
        self.line = line


def find_class(tree: ast.Module) -> str:
    """Name of the one environment class at top level; raises `ParseFailure`.

    Candidates end in `Env`; one that another candidate derives from is a base, not the environment.
    """
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name.endswith("Env")]
    names = list(dict.fromkeys(node.name for node in classes))
    bases = {base.id for node in classes for base in node.bases if isinstance(base, ast.Name)}
    leaves = [name for name in names if name not in bases]
    if len(leaves) == 1:
        return leaves[0]
    if not leaves:
        raise ParseFailure("no class whose name ends in Env at the top level")
    playable = [
        node.name
        for node in classes
        if {"reset", "step"} <= {part.name for part in node.body if isinstance(part, ast.FunctionDef)}
        and node.name in leaves
    ]
    if len(set(playable)) == 1:
        return playable[0]
    raise ParseFailure(
        f"{len(leaves)} environment classes ({', '.join(leaves[:5])}); there must be one", classes[1].lineno
    )


def count_state_variables(tree: ast.Module, class_name: str) -> int:
    """How many attributes of `self` the class assigns."""
    found: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name == class_name:
            for part in ast.walk(node):
                target_of_self = (
                    isinstance(part, ast.Attribute)
                    and isinstance(part.ctx, ast.Store)
                    and isinstance(part.value, ast.Name)
                    and part.value.id == "self"
                )
                if target_of_self and isinstance(part, ast.Attribute):
                    found.add(part.attr)
    return len(found)


@dataclass
class Episode:
    """Everything that belongs to one episode alone."""

    module: types.ModuleType
    random: types.ModuleType
    bit_generator: Any
    instance: Any = None


class Program:
    """The compiled program and its episodes."""

    def __init__(self, source: str) -> None:
        """Compile; raises `ParseFailure`. Nothing of the program runs yet."""
        try:
            tree = ast.parse(source, FILE_NAME)
            self.class_name = find_class(tree)
            self.state_variables = count_state_variables(tree, self.class_name)
            self.code = compile(tree, FILE_NAME, "exec", dont_inherit=True)
        except SyntaxError as error:
            raise ParseFailure(f"{type(error).__name__}: {error.msg}", error.lineno) from error
        except (ValueError, RecursionError) as error:
            raise ParseFailure(f"{type(error).__name__}: {error}") from error
        self.lines = source.count("\n") + 1
        linecache.cache[FILE_NAME] = (len(source), None, source.splitlines(keepends=True), FILE_NAME)
        self.episodes: dict[int, Episode] = {}
        self._provided = modules.provided_names()

    def _new_module(self) -> Episode:
        """Run the module body in a fresh namespace, with generators that start the same every time."""
        module = types.ModuleType(MODULE_NAME)
        names = module.__dict__
        names.update(self._provided)
        private = modules.private_random(0)
        names["random"] = private
        names["__file__"] = FILE_NAME
        episode = Episode(module, private, _new_bit_generator(0))
        self._enter(episode)
        exec(self.code, names)  # noqa: S102 - the sandbox: this is the one place where generated code runs
        return episode

    @staticmethod
    def _enter(episode: Episode) -> None:
        """Make the episode's own module and generators the current ones."""
        sys.modules[MODULE_NAME] = episode.module
        sys.modules["random"] = episode.random
        if episode.bit_generator is not None:
            sys.modules["numpy.random"].set_bit_generator(episode.bit_generator)

    def try_load(self) -> None:
        """Run the module body once, and see that it makes the class; raises what the program raises."""
        self._class_in(self._new_module())

    def _class_in(self, episode: Episode) -> type:
        found = episode.module.__dict__.get(self.class_name)
        if not isinstance(found, type):
            raise checks.ContractViolation(f"load: {self.class_name} is not a class after the module body ran")
        for method in ("reset", "step"):
            if not callable(getattr(found, method, None)):
                raise checks.ContractViolation(f"load: {self.class_name} has no method {method}()")
        return found

    def open_episode(self, seed: int, max_turns: int) -> tuple[Episode, Any]:
        """Construct and reset one instance; returns the episode and what `reset` returned, unchecked."""
        episode = self._new_module()
        _seed(episode, seed)
        episode.instance = self._class_in(episode)(max_turns=max_turns)
        return episode, episode.instance.reset(seed=seed)

    def step(self, number: int, action: str) -> Any:
        """What `step` returned, unchecked."""
        episode = self.episodes[number]
        self._enter(episode)
        return episode.instance.step(action)

    def solution(self, seed: int, max_turns: int) -> Any:
        """What `solution()` returns right after a reset, or None when there is no such method."""
        episode, _ = self.open_episode(seed, max_turns)
        method = getattr(episode.instance, "solution", None)
        return method() if callable(method) else None


def _new_bit_generator(seed: int) -> Any:
    random = sys.modules.get("numpy.random")
    return None if random is None else random.MT19937(seed)


def _seed(episode: Episode, seed: int) -> None:
    """Start both global generators from the episode's seed, whatever the module body drew."""
    episode.random.__dict__["_inst"].seed(seed)
    if episode.bit_generator is not None:
        episode.bit_generator._legacy_seeding(seed & 0xFFFFFFFF)
