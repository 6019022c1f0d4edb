from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omni.stages.demo.clauses import Clauses

pytestmark = pytest.mark.pure


def cut(*pieces: str) -> list[str]:
    clauses = Clauses()
    return [clause for piece in pieces for clause in clauses.feed(piece)] + clauses.flush()


@pytest.mark.parametrize(
    ("text", "clauses"),
    [
        ("", []),
        (" \n ", []),
        ("Yes.", ["Yes."]),
        ("One. Two! Three?", ["One.", "Two!", "Three?"]),
        ('He said "go." Then he went.', ['He said "go."', "Then he went."]),
        ("It costs 3.50 euros.", ["It costs 3.50 euros."]),
        ("Dr. Smith and J. Doe came. Then, they left.", ["Dr. Smith and J. Doe came.", "Then, they left."]),
        (
            "I see a cat, a dog, and a ball. Yes, really, I do.",
            ["I see a cat,", "a dog, and a ball.", "Yes, really, I do."],
        ),
        ("Yes, I do.", ["Yes, I do."]),
        ("Vitamin D.", ["Vitamin D."]),
        ("Pens, paper etc.", ["Pens, paper etc."]),
        ("- one\n- two\n", ["- one", "- two"]),
    ],
)
def test_sentences_are_clauses_and_the_first_may_end_at_a_comma(text: str, clauses: list[str]) -> None:
    assert cut(text) == clauses


def test_a_clause_is_given_out_as_soon_as_it_is_sure() -> None:
    clauses = Clauses()
    assert clauses.feed("It is 3.") == []
    assert clauses.feed("5 or more.") == []
    assert clauses.feed(" Then") == ["It is 3.5 or more."]
    assert clauses.flush() == ["Then"]


def test_no_clause_is_longer_than_the_voice_can_say_in_one_breath() -> None:
    assert max(map(len, cut("word " * 200))) <= 160
    assert max(map(len, cut("x" * 1000))) <= 160
    assert cut("word " * 200) == cut(*["word "] * 200)


@given(st.text("ab ,.!?\n\"'D1", max_size=400), st.lists(st.integers(1, 9)))
def test_nothing_is_lost_however_the_text_comes(text: str, sizes: list[int]) -> None:
    pieces, at = [], 0
    for size in sizes:
        pieces.append(text[at : at + size])
        at += size
    pieces.append(text[at:])
    assert "".join("".join(cut(*pieces)).split()) == "".join(text.split())
