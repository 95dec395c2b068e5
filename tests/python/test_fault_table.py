"""The fault table on two CPU ranks: each request of each situation ends with the code, the message and in the time that
docs/faults.md promises, nothing is left of it, and the next run is right.

Method: fault_table.py plays each situation once; each request of it is a test. `-s` shows the table.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import fault_table
from fault_table import EXPECTED, FAULTS, NO_SENSE, PLACES, REQUESTS, Situation, World

SITUATIONS = [(fault, place) for place in PLACES for fault in FAULTS if (fault, place) not in NO_SENSE]


class Worlds:
    """A daemon for all situations, and one whose rank 1 has wrong plans in generation 2, each made when needed."""

    def __init__(self, program: str, folders: pytest.TempPathFactory) -> None:
        self.program, self.folders = program, folders
        self.made: dict[str, World] = {}

    def of(self, fault: str) -> World:
        name, env = ("wrong plan", {"HOSTIR_TESTS_WRONG_PLAN": "1.2"}) if fault == "wrong plan" else ("all", {})
        if name not in self.made:
            folder = self.folders.mktemp("faults")
            folder.chmod(0o700)
            self.made[name] = World(self.program, "cpu:2", folder, [], env)
        return self.made[name]


@pytest.fixture(scope="module")
def worlds(daemon_program: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worlds]:
    worlds = Worlds(daemon_program, tmp_path_factory)
    yield worlds
    for world in worlds.made.values():
        world.close()


@pytest.fixture(scope="module")
def played() -> dict[tuple[str, str], Situation | BaseException]:
    return {}


def test_the_table_is_whole() -> None:
    """Each pair is played, or has a reason why it is none."""
    pairs = {(fault, place) for fault in FAULTS for place in PLACES}
    assert set(EXPECTED) | set(NO_SENSE) == pairs and not set(EXPECTED) & set(NO_SENSE)


@pytest.mark.parametrize("request_", REQUESTS)
@pytest.mark.parametrize(("fault", "place"), SITUATIONS)
def test_fault(
    worlds: Worlds,
    played: dict[tuple[str, str], Situation | BaseException],
    fault: str,
    place: str,
    request_: str,
) -> None:
    if (fault, place) not in played:
        try:
            played[fault, place] = situation = fault_table.play(worlds.of(fault), fault, place)
            print("\n" + fault_table.line(fault, place, situation), end="")
        except (AssertionError, fault_table.Skipped) as error:
            played[fault, place] = error
    situation_or_error = played[fault, place]
    if isinstance(situation_or_error, fault_table.Skipped):
        pytest.skip(str(situation_or_error))
    if isinstance(situation_or_error, BaseException):
        pytest.fail(str(situation_or_error), pytrace=False)
    outcome = situation_or_error.outcomes.get(request_)
    if outcome is None:
        pytest.skip(f"{request_}: not asked in this situation")
    if wrong := EXPECTED[fault, place][request_].fault_of(outcome):
        pytest.fail(wrong, pytrace=False)
    if situation_or_error.leaks:
        pytest.fail(f"left: {situation_or_error.leaks}", pytrace=False)
