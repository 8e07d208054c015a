"""The environments that are timed: our own code, so the benchmark may also run them in its own process."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Case:
    """A program to time, and the actions it is stepped with in turn."""

    name: str
    class_name: str
    actions: tuple[str, ...]
    source: str


# The guesses are never the number, so that no episode ends.
TRIVIAL = Case(
    "trivial",
    "TrivialEnv",
    (r"\boxed{0}", r"\boxed{101}"),
    source=r"""
class TrivialEnv:
    '''Guess a number from 1 to 100.'''

    def __init__(self, max_turns=10**9, **kwargs):
        self.max_turns = max_turns

    def reset(self, seed=None):
        self.number = random.Random(seed).randint(1, 100)
        self.turn = 0
        return "Guess a number from 1 to 100.", {}

    def step(self, action):
        self.turn += 1
        guess = action.removeprefix("\\boxed{").removesuffix("}")
        if not guess.isdigit():
            return "Say a number, as in \\boxed{7}.", 0.0, False, self.turn >= self.max_turns, {}
        if int(guess) == self.number:
            return "Found.", 1.0, True, False, {}
        answer = "higher" if int(guess) < self.number else "lower"
        return answer, 0.0, False, self.turn >= self.max_turns, {}
""",
)

_MOVES = (
    r"\boxed{move north}",
    r"\boxed{call}",
    r"\boxed{move east}",
    r"\boxed{move south}",
    r"\boxed{move west}",
    "hm",
)

REALISTIC = Case(
    "realistic",
    "GridRescueEnv",
    _MOVES,
    source=r'''
import random
import re
from collections import deque


class GridRescueEnv:
    """Find the survivor in a dark building: walls are seen only from the next room, and the air runs out."""

    DIRECTIONS = {"north": (-1, 0), "south": (1, 0), "west": (0, -1), "east": (0, 1)}
    SIZE = 11

    def __init__(self, max_turns=10**9, **kwargs):
        self.max_turns = max_turns
        self.size = self.SIZE
        self.rng = random.Random(0)

    def _free(self, row, column):
        return 0 <= row < self.size and 0 <= column < self.size and (row, column) not in self.walls

    def _distances(self, start):
        distances = {start: 0}
        queue = deque([start])
        while queue:
            row, column = queue.popleft()
            for down, right in self.DIRECTIONS.values():
                place = (row + down, column + right)
                if self._free(*place) and place not in distances:
                    distances[place] = distances[(row, column)] + 1
                    queue.append(place)
        return distances

    def reset(self, seed=None):
        self.rng = random.Random(seed)
        while True:
            cells = [(row, column) for row in range(self.size) for column in range(self.size)]
            self.walls = set(self.rng.sample(cells, self.size * 3))
            free = [cell for cell in cells if cell not in self.walls]
            self.position, self.survivor = self.rng.sample(free, 2)
            distances = self._distances(self.survivor)
            if distances.get(self.position, 0) >= 6:
                break
        self.distances = distances
        self.best = distances[self.position]
        self.turn = 0
        self.seen = {self.position}
        self.calls = 0
        self._look()
        return self._describe("You enter the building."), {"distance": float(self.best)}

    def _look(self):
        row, column = self.position
        for down in (-1, 0, 1):
            for right in (-1, 0, 1):
                self.seen.add((row + down, column + right))

    def _map(self):
        lines = []
        for row in range(self.size):
            marks = []
            for column in range(self.size):
                if (row, column) == self.position:
                    marks.append("@")
                elif (row, column) not in self.seen:
                    marks.append("?")
                elif (row, column) in self.walls:
                    marks.append("#")
                else:
                    marks.append(".")
            lines.append(" ".join(marks))
        return "\n".join(lines)

    def _describe(self, event):
        row, column = self.position
        exits = [name for name, (down, right) in self.DIRECTIONS.items() if self._free(row + down, column + right)]
        warmth = self.distances.get(self.position, 99)
        feeling = "very loud" if warmth <= 3 else "audible" if warmth <= 7 else "faint"
        return (
            f"{event}\nTurn {self.turn}. You are in room {row},{column}. The knocking is {feeling}.\n"
            f"Ways out: {', '.join(exits) or 'none'}. Rooms seen: {len(self.seen)} of {self.size * self.size}. "
            f"Calls for help so far: {self.calls}.\n\n{self._map()}\n\n"
            "Legend: @ you, # wall, . floor, ? not seen yet. The survivor is behind one of the rooms you have not seen.\n"
            "Choose one way per turn, or call to hear how far the survivor is. Examples of an action:\n"
            "\\boxed{move north}, \\boxed{move east}, \\boxed{call}. Anything else costs a turn and tells you nothing.\n"
            "The air lasts for a limited number of turns; rescue ends the game with the full reward."
        )

    def step(self, action):
        self.turn += 1
        truncated = self.turn >= self.max_turns
        found = re.search(r"\\boxed\{\s*(move\s+(north|south|east|west)|call)\s*\}", action.strip().lower())
        if found is None:
            return self._describe("You hesitate: that is no action."), 0.0, False, truncated, {"valid": 0.0}
        if found.group(1) == "call":
            self.calls += 1
            distance = self.distances.get(self.position, 99)
            return self._describe(f"An answer, about {distance} rooms away."), 0.0, False, truncated, {"valid": 1.0}
        down, right = self.DIRECTIONS[found.group(2)]
        place = (self.position[0] + down, self.position[1] + right)
        if not self._free(*place):
            self.seen.add(place)
            return self._describe("A wall. You stay where you are."), 0.0, False, truncated, {"valid": 1.0}
        self.position = place
        self._look()
        if place == self.survivor:
            reward = max(0.5, self.best / max(self.turn, self.best))
            return self._describe("You found the survivor!"), reward, True, False, {"valid": 1.0}
        return self._describe(f"You move {found.group(2)}."), 0.0, False, truncated, {"valid": 1.0}

    def solution(self):
        actions, place = [], self.position
        while place != self.survivor:
            for name, (down, right) in self.DIRECTIONS.items():
                following = (place[0] + down, place[1] + right)
                if self.distances.get(following, 99) < self.distances[place]:
                    actions.append("\\boxed{move " + name + "}")
                    place = following
                    break
        return actions
''',
)

HANGING = r"""
class HangingEnv:
    def __init__(self, max_turns=10, **kwargs):
        pass

    def reset(self, seed=None):
        return "begin", {}

    def step(self, action):
        while True:
            pass
"""
