from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.recorder import Recorder

from omni.contract import names
from omni.contract.chunk import KEPT, TextDelta
from omni.contract.errors import Cancelled, OmniError, Overloaded, TimedOut, TooLarge
from omni.contract.job import Job, MediaPart, Message, TextPart, pack_job
from omni.contract.params import Settings
from omni.contract.tensors import StageMessage, Tensors, pack, string
from omni.runtime.generations import Abort, Generations, Open, Pace, Push

pytestmark = pytest.mark.pure
COALESCE = Pace(0.04, 4)


def thought(seq: int, text: str = "", *, eos: bool = False, error: OmniError | None = None) -> Tensors:
    said = TextDelta(text, 1) if text else None
    return pack(names.THINKER, StageMessage(seq=seq, text=said, eos=eos, error=error))


def deliver(generations: Generations, now: float = 0.0) -> list[StageMessage]:
    """Send what is due; what each responder was told, in the order of sending."""
    sent = []
    for delivery in generations.outgoing(now):
        assert isinstance(delivery.responder, Recorder)
        packed = None if delivery.message is None else pack(names.CODE2WAV, delivery.message)
        delivery.responder.send(packed, delivery.final)
        if delivery.message is not None:
            sent.append(delivery.message)
    return sent


def words(messages: list[StageMessage]) -> str:
    return "".join(m.text.text for m in messages if m.text is not None)


def test_text_goes_out_before_the_stage_has_seen_it() -> None:
    generations, anchor = Generations(names.TALKER), Recorder()
    generations.receive("g", "{}", thought(0, "hello"), anchor, 0)
    assert words(deliver(generations)) == "hello"
    assert [type(work) for work in generations.work()] == [Open, Push]
    assert anchor.finals == 0


def test_news_alone_take_no_place_in_the_stage() -> None:
    generations, anchor, later = Generations(names.THINKER), Recorder(), Recorder()
    generations.receive("g", "{}", pack(names.PREPROCESS, StageMessage(event=KEPT)), anchor, 0)
    assert [message.event for message in deliver(generations)] == [KEPT]
    assert generations.work() == []
    generations.receive("g", "{}", pack(names.PREPROCESS, StageMessage(seq=1, eos=True)), later, 0)
    assert [type(work) for work in generations.work()] == [Open, Push]


def test_later_requests_are_closed_at_once_and_carry_what_is_ready() -> None:
    generations, requests = Generations(names.TALKER), [Recorder() for _ in range(3)]
    for seq, request in enumerate(requests):
        generations.receive("g", "{}", thought(seq, f"{seq} "), request, 0)
        deliver(generations)
    assert [request.finals for request in requests] == [0, 1, 1]
    assert [words(request.got) for request in requests] == ["0 ", "1 ", "2 "]
    assert generations.open_requests == 1


def test_a_generation_ends_when_both_its_stage_and_the_stage_before_are_done() -> None:
    generations, anchor, last = Generations(names.TALKER), Recorder(), Recorder()
    generations.receive("g", "{}", thought(0, "a"), anchor, 0)
    generations.produced([("g", StageMessage(eos=True))])
    deliver(generations)
    assert anchor.finals == 0
    generations.receive("g", "{}", thought(1, "b", eos=True), last, 0)
    sent = deliver(generations)
    assert (anchor.finals, last.finals, len(generations), generations.open_requests) == (1, 1, 0, 0)
    assert words(sent) == "b"
    assert [m.eos for m in sent] == [False] * (len(sent) - 1) + [True]
    assert generations.outcomes["completed"] == 1


def test_messages_that_overtake_each_other_are_put_in_order() -> None:
    generations, requests = Generations(names.TALKER), [Recorder() for _ in range(4)]
    sent = []
    for seq, request in zip((0, 2, 3, 1), requests, strict=True):
        generations.receive("g", "{}", thought(seq, str(seq), eos=seq == 3), request, 0)
        sent += deliver(generations)
    assert words(sent) == "0123"
    assert [m.seq for m in sent] == list(range(len(sent)))


def test_an_error_from_the_stage_before_ends_everything_at_once() -> None:
    generations, anchor = Generations(names.TALKER), Recorder()
    generations.receive("g", "{}", thought(0, "a"), anchor, 0)
    generations.work()
    generations.receive("g", "{}", thought(1, eos=True, error=Overloaded("full")), Recorder(), 0)
    sent = deliver(generations)
    assert isinstance(sent[-1].error, Overloaded)
    assert sent[-1].eos
    assert anchor.finals == 1
    assert generations.work() == [Abort("g")]


def test_what_comes_after_the_end_is_closed_without_an_answer() -> None:
    generations, late = Generations(names.TALKER), Recorder()
    generations.receive("g", "{}", thought(0, "a"), Recorder(), 0)
    generations.abort("g")
    deliver(generations)
    generations.work()
    generations.receive("g", "{}", thought(1, "b"), late, 0)
    deliver(generations)
    assert (late.finals, late.got, len(generations), generations.work()) == (1, [], 0, [])


def test_an_abort_may_come_before_the_generation() -> None:
    generations, anchor = Generations(names.TALKER), Recorder()
    generations.abort("g")
    generations.receive("g", "{}", thought(0, "a"), anchor, 0)
    deliver(generations)
    assert (anchor.finals, len(generations), generations.work()) == (1, 0, [])


def test_an_id_may_be_used_again_once_it_is_over() -> None:
    generations, again, straggler = Generations(names.TALKER), Recorder(), Recorder()
    generations.receive("g", "{}", thought(0, "a"), Recorder(), 0)
    generations.abort("g")
    generations.receive("g", "{}", thought(1, "b"), straggler, 0)
    generations.receive("g", "{}", thought(0, "c"), again, 0)
    assert words(deliver(generations)) == "ac"
    assert (straggler.finals, straggler.got, again.finals, len(generations)) == (1, [], 0, 1)


def test_an_abort_of_something_that_is_over_does_not_stop_the_next_of_its_id() -> None:
    generations, again = Generations(names.TALKER), Recorder()
    generations.receive("g", "{}", thought(0, "a"), Recorder(), 0)
    generations.abort("g")
    generations.abort("g")
    generations.receive("g", "{}", thought(0, "b"), again, 0)
    deliver(generations)
    assert words(again.got) == "b"


def test_a_lost_lease_ends_what_lives_on_it_now_and_later() -> None:
    generations = Generations(names.TALKER)
    mine, other, late = Recorder(), Recorder(), Recorder()
    lease = Settings(lease="L").dumps()
    generations.receive("g", lease, thought(0, "a"), mine, 0)
    generations.receive("h", "{}", thought(0, "a"), other, 0)
    generations.lease_lost("L")
    generations.receive("i", lease, thought(0, "a"), late, 0)
    deliver(generations)
    assert (mine.finals, other.finals, late.finals, len(generations)) == (1, 0, 1, 1)
    assert isinstance(mine.got[-1].error, Cancelled)


def test_silence_before_the_end_is_reaped_and_after_it_is_not() -> None:
    generations, silent, done = Generations(names.TALKER, ttl_s=10), Recorder(), Recorder()
    generations.receive("g", "{}", thought(0, "a"), silent, 0)
    generations.receive("h", "{}", thought(0, "a", eos=True), done, 0)
    assert generations.reap(9) == 0
    assert generations.reap(11) == 1
    deliver(generations)
    assert isinstance(silent.got[-1].error, TimedOut)
    assert (silent.finals, done.finals) == (1, 0)


@pytest.mark.parametrize("tensors", [{"TEXT": string(b"no json")}, {"SEQ": np.array([-1], np.int32)}])
def test_an_unreadable_message_fails_its_generation(tensors: Tensors) -> None:
    generations, anchor = Generations(names.TALKER), Recorder()
    generations.receive("g", "{}", tensors, anchor, 0)
    deliver(generations)
    assert anchor.finals == 1
    assert anchor.got[-1].error is not None


def test_an_unreadable_message_on_a_lost_lease_ends_once() -> None:
    generations, anchor = Generations(names.TALKER), Recorder()
    generations.lease_lost("L")
    generations.receive("g", Settings(lease="L").dumps(), {"TEXT": string(b"no json")}, anchor, 0)
    deliver(generations)
    assert (anchor.finals, len(generations), generations.outcomes["cancelled"]) == (1, 0, 1)


@pytest.mark.parametrize("settings", ["nonsense", '{"sampling":{"thinker":{"top_p":7}}}'])
def test_unreadable_settings_fail_their_generation(settings: str) -> None:
    generations, anchor = Generations(names.TALKER), Recorder()
    generations.receive("g", settings, thought(0, "a"), anchor, 0)
    deliver(generations)
    assert anchor.finals == 1
    assert len(generations) == generations.open_requests == 0


def test_preprocess_is_told_the_job_and_that_nothing_follows() -> None:
    generations, anchor = Generations(names.PREPROCESS), Recorder()
    head, media = pack_job(Job(id="g", messages=(Message("user", (TextPart("hi"),)),)))
    generations.receive("g", "{}", {"JOB": string(head), "MEDIA": media}, anchor, 0)
    opened, push = generations.work()
    assert isinstance(opened, Open)
    assert isinstance(push, Push)
    assert push.message.job is not None
    assert push.message.job.messages[0].text == "hi"
    assert push.message.eos


def pieces(size: int) -> list[Tensors]:
    """A job with media of so many bytes, one in each piece, and JOB with the first."""
    head, media = pack_job(Job(id="g", messages=(Message("user", (MediaPart.of("image", bytes(size)),)),)))
    out: list[Tensors] = [{"PIECE": np.array([n], np.int32), "MEDIA": media[n : n + 1]} for n in range(size)]
    out[0]["JOB"] = string(head)
    return out


def sent_pieces(
    generations: Generations, inputs: list[Tensors], settings: str = "{}", now: float = 0
) -> list[Recorder]:
    requests = [Recorder() for _ in inputs]
    for one, request in zip(inputs, requests, strict=True):
        generations.receive("g", settings, one, request, now)
        deliver(generations)
    return requests


@pytest.mark.parametrize("order", [[0, 1, 2], [2, 1, 0]])
def test_preprocess_learns_of_a_job_with_its_first_piece_and_is_told_it_with_the_last(order: list[int]) -> None:
    generations, inputs = Generations(names.PREPROCESS), pieces(3)
    requests = sent_pieces(generations, [inputs[n] for n in order[:2]])
    assert [type(work) for work in generations.work()] == [Open]
    requests += sent_pieces(generations, [inputs[order[2]]])
    [push] = generations.work()
    assert isinstance(push, Push)
    assert push.message.job is not None
    assert push.message.job.media[0].data == bytes(3)
    assert [request.finals for request in requests] == [0, 1, 1]
    generations.produced([("g", StageMessage(eos=True))])
    deliver(generations)
    assert (requests[0].finals, generations.open_requests) == (1, 0)


@pytest.mark.parametrize("order", [[0, 1, 2], [1, 0, 2], [2, 1, 0]])
@pytest.mark.parametrize("end", ["abort", "lease", "refusal", "silence"])
def test_a_generation_may_end_between_its_pieces(order: list[int], end: str) -> None:
    generations, inputs = Generations(names.PREPROCESS, ttl_s=10), pieces(3)
    settings = Settings(lease="L").dumps()
    [anchor] = sent_pieces(generations, [inputs[order[0]]], settings)
    if end == "abort":
        generations.abort("g")
    elif end == "lease":
        generations.lease_lost("L")
    elif end == "refusal":
        generations.fail("g", Overloaded("full"))
    else:
        generations.reap(11)
    late = sent_pieces(generations, [inputs[n] for n in order[1:]], settings)
    assert anchor.got[-1].error is not None
    assert [request.finals for request in (anchor, *late)] == [1, 1, 1]
    assert all(request.got == [] for request in late)
    assert [type(work) for work in generations.work()] == [Abort]
    assert len(generations) == generations.open_requests == 0


def test_an_abort_may_come_before_all_pieces_in_any_order() -> None:
    generations, inputs = Generations(names.PREPROCESS), pieces(3)
    generations.abort("g")
    requests = sent_pieces(generations, [inputs[n] for n in (1, 0, 2)])
    assert [request.finals for request in requests] == [1, 1, 1]
    assert (len(generations), generations.work()) == (0, [])
    [again] = sent_pieces(generations, [inputs[0]])
    assert (again.finals, len(generations)) == (0, 1)


def test_each_piece_is_a_sign_of_life() -> None:
    generations, inputs = Generations(names.PREPROCESS, ttl_s=10), pieces(3)
    for now, one in enumerate(inputs[:2]):
        sent_pieces(generations, [one], now=8.0 * now)
    assert generations.reap(17) == 0
    assert generations.reap(19) == 1


def test_pieces_that_do_not_fit_fail_their_generation_alone() -> None:
    generations, other = Generations(names.PREPROCESS, max_media_bytes=3), Recorder()
    generations.receive("h", "{}", pieces(2)[0], other, 0)
    [anchor, again] = sent_pieces(generations, pieces(3)[:1] * 2)
    assert (anchor.finals, again.finals, other.finals) == (1, 1, 0)
    [anchor] = sent_pieces(generations, pieces(4)[:1])
    assert isinstance(anchor.got[-1].error, TooLarge)
    assert len(generations) == generations.open_requests == 1


def token(text: str, *, finish: bool = False) -> list[tuple[str, StageMessage]]:
    return [("g", StageMessage(text=TextDelta(text, 1, "stop" if finish else None), eos=finish))]


def opened(pace: Pace) -> tuple[Generations, Recorder]:
    generations, anchor = Generations(names.THINKER, pace=pace), Recorder()
    generations.receive("g", "{}", pack(names.PREPROCESS, StageMessage(eos=True)), anchor, 0)
    return generations, anchor


def test_a_first_token_that_is_only_half_a_character_keeps_the_next_one_from_waiting() -> None:
    generations, _ = opened(COALESCE)
    for text in ("", "\u00e9"):
        generations.produced(token(text))
        assert words(deliver(generations, 0)) == text
    generations.produced(token("b"))
    assert deliver(generations, 0) == []


def test_the_first_token_goes_out_alone_and_later_ones_wait_for_company() -> None:
    generations, _ = opened(COALESCE)
    generations.produced(token("a"))
    assert words(deliver(generations, 0)) == "a"
    for n, text in enumerate("bcd"):
        generations.produced(token(text))
        assert deliver(generations, 0.001 * n) == []
    assert generations.next_due() == pytest.approx(0.04)
    generations.produced(token("e"))
    assert words(deliver(generations, 0.005)) == "bcde"
    generations.produced(token("f"))
    assert deliver(generations, 0.044) == []
    assert words(deliver(generations, 0.046)) == "f"


def test_the_end_does_not_wait() -> None:
    generations, anchor = opened(COALESCE)
    generations.produced(token("a"))
    deliver(generations, 0)
    generations.produced(token("b", finish=True))
    assert words(deliver(generations, 0)) == "b"
    assert anchor.finals == 1


@given(st.lists(st.tuples(st.sampled_from(["token", "send", "abort", "reap"]), st.floats(0, 0.1))), st.booleans())
def test_any_run_loses_no_text_and_closes_every_request(steps: list[tuple[str, float]], coalesce: bool) -> None:
    generations, anchor = opened(COALESCE if coalesce else Pace())
    now, said, sent = 0.0, "", ""
    digits: Iterator[int] = iter(range(10**6))
    for step, pause in steps:
        now += pause
        if step == "token" and len(generations):
            text = f"{next(digits)} "
            said += text
            generations.produced(token(text))
        elif step == "send":
            sent += words(deliver(generations, now))
        elif step == "abort":
            generations.abort("g")
        else:
            generations.reap(now)
    if len(generations):
        generations.produced(token("end", finish=True))
        said += "end"
    sent += words(deliver(generations, now + 1))
    assert sent == said
    assert (anchor.finals, generations.open_requests, len(generations)) == (1, 0, 0)
    assert [m.seq for m in anchor.got] == list(range(len(anchor.got)))
    assert sum(generations.outcomes.values()) == 1
