"""One generated program inside its worker: compile, find the class, one fresh module and instance per episode.

The module body runs again for every episode (about 30 microseconds for an ordinary program), with a `random` module
and a numpy generator of the episode's own. So neither module-level state nor the global generators leak from one
interleaved episode into another. The code objects are the episode's own as well: the interpreter notes in them which
classes it met, and shared ones would be wrong about it at every change of episode.
"""

from __future__ import annotations

import ast
import dis
import inspect
import itertools
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


def _copy_of(code: types.CodeType) -> types.CodeType:
    """The same code in objects of its own, down to the innermost function; names and constants stay shared."""
    inner = [_copy_of(constant) if type(constant) is types.CodeType else constant for constant in code.co_consts]
    return code.replace(co_consts=tuple(inner))


def _class_bodies(code: types.CodeType) -> list[types.CodeType]:
    """Bodies of the classes a module makes whose names end in `Env`, in order."""
    inner = (constant for constant in code.co_consts if isinstance(constant, types.CodeType))
    return [body for body in inner if body.co_name.endswith("Env") and not body.co_flags & inspect.CO_NEWLOCALS]


def find_class(source: str, code: types.CodeType) -> str:
    """Name of the one environment class of a module; raises `ParseFailure`.

    Candidates end in `Env`; one that another candidate derives from is a base, not the environment. The syntax tree is
    made only when there are several: it would dirty two megabytes of the memory shared with the zygote.
    """
    bodies = _class_bodies(code)
    names = list(dict.fromkeys(body.co_name for body in bodies))
    if not names:
        raise ParseFailure("no class whose name ends in Env")
    if len(names) == 1:
        return names[0]
    classes = [node for node in ast.walk(ast.parse(source, FILE_NAME)) if isinstance(node, ast.ClassDef)]
    bases = {base.id for node in classes if node.name in names for base in node.bases if isinstance(base, ast.Name)}
    leaves = [name for name in names if name not in bases]
    playable = [body.co_name for body in bodies if body.co_name in leaves and {"reset", "step"} <= _methods(body)]
    if len(leaves) == 1 or len(set(playable)) == 1:
        return (playable or leaves)[0]
    several = f"{len(leaves)} environment classes ({', '.join(leaves[:5])}); there must be one"
    raise ParseFailure(several, bodies[1].co_firstlineno)


def _methods(body: types.CodeType) -> set[str]:
    return {constant.co_name for constant in body.co_consts if isinstance(constant, types.CodeType)}


def count_state_variables(code: types.CodeType, class_name: str) -> int:
    """How many attributes of `self` the methods of the class assign."""
    found: set[str] = set()
    for body in _class_bodies(code):
        if body.co_name != class_name:
            continue
        for method in body.co_consts:
            if isinstance(method, types.CodeType):
                steps = list(dis.get_instructions(method))
                pairs = itertools.pairwise(steps)
                found |= {two.argval for one, two in pairs if two.opname == "STORE_ATTR" and _loads_self(one)}
    return len(found)


def _loads_self(step: dis.Instruction) -> bool:
    """Newer interpreters load two names at once: `("value", "self")`."""
    last = step.argval[-1] if isinstance(step.argval, tuple) else step.argval
    return step.opname.startswith("LOAD_FAST") and last == "self"


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
            self.code = compile(source, FILE_NAME, "exec", dont_inherit=True)
            self.class_name = find_class(source, self.code)
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
        exec(_copy_of(self.code), names)  # noqa: S102 - the sandbox: this is the one place where generated code runs
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
