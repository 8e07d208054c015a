"""The modules an environment may import, preloaded before files become unreachable, and the names it is given.

A zygote comes in one of three flavours: `plain` (standard library), `numpy`, `math` (numpy, sympy and math-verify,
one to two seconds to load). The host picks the cheapest flavour whose words occur in the source.
"""

from __future__ import annotations

import importlib
import itertools
import re
import sys
import types
from collections.abc import Callable
from typing import Any

FLAVOURS: tuple[str, ...] = ("plain", "numpy", "math")

STANDARD: tuple[str, ...] = (
    "__future__", "abc", "array", "ast", "base64", "binascii", "bisect", "calendar", "cmath", "codecs", "collections",
    "collections.abc", "colorsys", "contextlib", "contextvars", "copy", "copyreg", "csv", "dataclasses", "datetime",
    "decimal", "difflib", "dis", "enum", "errno", "fractions", "functools", "gc", "graphlib", "hashlib", "heapq", "hmac",
    "html", "html.parser", "inspect", "io", "itertools", "json", "json.decoder", "json.encoder", "keyword", "linecache",
    "locale", "logging", "math", "numbers", "operator", "os", "os.path", "pprint", "queue", "random", "re", "reprlib",
    "secrets", "sched", "select", "signal", "statistics", "string", "struct", "sys", "textwrap", "threading", "time",
    "timeit", "token", "tokenize", "traceback", "types", "typing", "unicodedata", "uuid", "warnings", "weakref", "zlib",
    "_strptime", "stringprep", "pathlib", "shlex", "bz2", "pickle", "cProfile", "platform", "zoneinfo", "tempfile",
    "encodings.ascii", "encodings.latin_1", "encodings.utf_8", "encodings.utf_16", "encodings.utf_32", "encodings.idna",
    "encodings.unicode_escape", "encodings.raw_unicode_escape", "encodings.rot_13", "encodings.hex_codec",
    "encodings.base64_codec", "encodings.cp1252", "encodings.cp437", "encodings.utf_8_sig",
)  # fmt: skip
NUMPY: tuple[str, ...] = ("numpy", "numpy.linalg", "numpy.random", "numpy.fft", "numpy.polynomial", "numpy.ma")

# Name given to the program -> "module" or "module:attribute" (spec 01, section 3).
PROVIDED: dict[str, str] = {
    **{
        name: name
        for name in (
            "itertools", "math", "random", "re", "json", "collections", "functools", "string", "copy", "heapq",
            "operator", "statistics",
        )
    },
    **{name: f"collections:{name}" for name in ("deque", "defaultdict", "Counter", "OrderedDict", "namedtuple")},
    **{name: f"itertools:{name}" for name in ("combinations", "permutations", "product", "chain", "accumulate")},
    **{name: f"functools:{name}" for name in ("reduce", "lru_cache")},
    "deepcopy": "copy:deepcopy",
    **{name: f"heapq:{name}" for name in ("heappush", "heappop")},
    **{
        name: f"typing:{name}"
        for name in (
            "Any", "Callable", "ClassVar", "Deque", "DefaultDict", "Dict", "FrozenSet", "Generator", "Generic",
            "Iterable", "Iterator", "List", "Literal", "Mapping", "NamedTuple", "Optional", "Protocol", "Sequence",
            "Set", "Tuple", "Type", "TypeVar", "Union",
        )
    },
}  # fmt: skip
PROVIDED_NUMPY: dict[str, str] = {"numpy": "numpy", "np": "numpy"}
PROVIDED_MATH: dict[str, str] = {"parse": "math_verify:parse", "verify": "math_verify:verify"}

# Expressions that make sympy and its LaTeX grammar load what they load lazily.
_WARM_UP: tuple[str, ...] = (
    r"$\frac{1}{2}$", r"$\sqrt{2}+x^2$", r"\boxed{3.5}", r"$(1,2)$", r"$\{1,2,3\}$", r"$[0,1)\cup(2,3]$", r"$x=5$", "7/8",
    r"$\begin{pmatrix}1&2\\3&4\end{pmatrix}$", r"$\int_0^1 x dx$", r"$\sin(\pi/3)$", r"$50\%$", r"$x<3$", r"$\log_2 8$",
)  # fmt: skip

# The provided names `parse` and `verify` used as names (not as methods, not being defined), or the packages by name.
_WANTS_MATH = re.compile(r"\b(?:math_verify|sympy|mpmath)\b|(?<![\w.])(?<!def )(?:parse|verify)\s*[(,)\]]")
_WANTS_NUMPY = re.compile(r"(?<![\w.])(?:np|numpy)\b")


def flavour_of(source: str) -> str:
    """Cheapest flavour that serves a source: decided by words in it, never by running or parsing it."""
    if _WANTS_MATH.search(source):
        return "math"
    return "numpy" if _WANTS_NUMPY.search(source) else "plain"


def preload(flavour: str) -> list[str]:
    """Import everything the flavour offers; returns the optional packages that are not installed."""
    missing: list[str] = []
    for name in STANDARD:
        importlib.import_module(name)
    if flavour in ("numpy", "math"):
        try:
            for name in NUMPY:
                importlib.import_module(name)
        except ImportError:
            missing.append("numpy")
    if flavour == "math":
        try:
            _preload_math()
        except ImportError:
            missing.append("math_verify")
    return missing


def _preload_math() -> None:
    """Load math-verify, take out its own alarms (the worker has one clock), and touch what it loads lazily."""
    math_verify = importlib.import_module("math_verify")
    for name in ("math_verify.parser", "math_verify.grader"):
        module = importlib.import_module(name)
        module.timeout = _without_timeout  # type: ignore[attr-defined]
        module.TIMEOUT_WARNING_SHOWN = True  # type: ignore[attr-defined]
    parsed = [math_verify.parse(text) for text in _WARM_UP]
    for gold, target in itertools.pairwise([*parsed, parsed[0]]):
        math_verify.verify(gold, target)
        math_verify.verify(gold, gold)
    importlib.import_module("sympy.sets.handlers.functions")
    sympy = importlib.import_module("sympy")
    x = sympy.symbols("x")
    sympy.solve(x**2 - 3 * x + 2, x)
    sympy.simplify(sympy.sin(x) ** 2 + sympy.cos(x) ** 2)
    sympy.integrate(x * sympy.exp(x), x)


def _without_timeout(timeout_seconds: int | None = None) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    return lambda function: function


def provided_names() -> dict[str, Any]:
    """Names put into the namespace of a program before it runs, from the modules that are loaded."""
    names: dict[str, Any] = {}
    for table in (PROVIDED, PROVIDED_NUMPY, PROVIDED_MATH):
        for name, path in table.items():
            module_name, _, attribute = path.partition(":")
            module = sys.modules.get(module_name)
            if module is not None:
                names[name] = getattr(module, attribute) if attribute else module
    return names


class _NoOtherModules:
    """Last finder in the worker: a clear ImportError instead of a failing file search."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        """Raise `ModuleNotFoundError` for every module that was not preloaded."""
        raise ModuleNotFoundError(f"No module named {name!r}: the sandbox provides the standard library's "
                                  "computing modules, numpy, and parse/verify", name=name)  # fmt: skip


def close_imports() -> None:
    """Leave only what is already loaded importable."""
    builtin = [finder for finder in sys.meta_path if getattr(finder, "__name__", "") == "BuiltinImporter"]
    sys.meta_path[:] = [*builtin, _NoOtherModules]
    sys.path[:] = []
    sys.path_importer_cache.clear()
    sys.path_hooks[:] = []
    for name in ("ctypes", "_ctypes", "socket", "_socket", "subprocess", "_posixsubprocess"):
        sys.modules.pop(name, None)


def private_random(seed: int) -> types.ModuleType:
    """A `random` module of its own for one episode: same names, own generator, so interleaving changes nothing."""
    shared = sys.modules["random"]
    module = types.ModuleType("random", shared.__doc__)
    module.__dict__.update(shared.__dict__)
    generator = shared.Random(seed)
    shared_generator = shared._inst
    for name, value in shared.__dict__.items():
        if getattr(value, "__self__", None) is shared_generator:
            module.__dict__[name] = getattr(generator, name)
    module.__dict__["_inst"] = generator
    return module
