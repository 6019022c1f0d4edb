"""Thousands of broken inputs for everything that makes sense of bytes; `make fuzz` tries many more of them."""

from __future__ import annotations

import random

import pytest
from fuzz.mutate import Mutator
from fuzz.seeds import seeds
from fuzz.targets import TARGETS

pytestmark = [pytest.mark.pure, pytest.mark.filterwarnings("ignore::UserWarning:PIL")]

INPUTS = 5000
OF_EACH = -(-INPUTS // len(TARGETS))


@pytest.mark.parametrize("name", TARGETS)
def test_nothing_but_our_own_errors(name: str) -> None:
    examples = seeds()[name]
    for pieces in examples:
        TARGETS[name](pieces)
    choose = random.Random(1)
    for number in range(OF_EACH):
        pieces = Mutator(number).pieces(choose.choice(examples))
        try:
            TARGETS[name](pieces)
        except Exception as failure:
            failure.add_note(f"{name} was given {pieces!r}"[:2000])
            raise
