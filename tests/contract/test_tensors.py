from __future__ import annotations

import contextlib
from dataclasses import fields
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omni.contract import errors, names, tensors
from omni.contract.chunk import TextDelta, Usage
from omni.contract.errors import OmniError
from omni.contract.handover import Handover
from omni.contract.tensors import Control, StageMessage, pack, unpack

pytestmark = pytest.mark.pure

texts = st.text(st.characters(exclude_categories=("Cs",)))
deltas = st.builds(
    TextDelta,
    text=texts,
    tokens=st.integers(0, 99),
    finish=st.sampled_from([None, "stop", "length"]),
    usage=st.none() | st.builds(Usage, *[st.integers(0, 10**6)] * 4),
)


def arrays(dtype: str, rank: int = 1) -> st.SearchStrategy[np.ndarray[Any, Any]]:
    shape = st.tuples(*[st.integers(1, 5)] * rank)
    return shape.map(lambda s: np.arange(int(np.prod(s)), dtype=dtype).reshape(s))


handovers = st.builds(
    Handover,
    meta=st.dictionaries(texts, st.integers() | texts | st.none()),
    arrays=st.dictionaries(
        texts, st.one_of(arrays("float32", 2), arrays("uint8", 3), arrays("int64"), arrays("float16"))
    ),
)
failures = st.builds(
    lambda cls, message, param: cls(message, param=param),
    st.sampled_from(list(errors.BY_CODE.values())),
    texts,
    st.none() | texts,
)


def same(a: StageMessage, b: StageMessage) -> bool:
    def equal(x: Any, y: Any) -> bool:
        if isinstance(x, np.ndarray):
            return x.dtype == y.dtype and np.array_equal(x, y)
        if isinstance(x, Handover):
            return x.meta == y.meta and all(equal(v, y.arrays[k]) for k, v in x.arrays.items())
        if isinstance(x, OmniError):
            return type(x) is type(y) and x.to_json() == y.to_json()
        return bool(x == y)

    return all(equal(getattr(a, f.name), getattr(b, f.name)) for f in fields(StageMessage))


@given(text=st.none() | deltas, handover=st.none() | handovers, tokens=st.none() | arrays("int32"),
       error=st.none() | failures, seq=st.integers(0, 2**31 - 1), eos=st.booleans())  # fmt: skip
def test_what_the_thinker_packs_the_talker_unpacks(**parts: Any) -> None:
    message = StageMessage(**parts)
    assert same(unpack(pack(names.THINKER, message)), message)


@given(codes=arrays("int32", 2), event=st.dictionaries(texts, st.integers()))
def test_what_the_talker_packs_code2wav_unpacks(codes: Any, event: dict[str, int]) -> None:
    message = StageMessage(codes=codes, event=event)
    assert same(unpack(pack(names.TALKER, message)), message)


def test_an_edge_takes_only_its_own_tensors() -> None:
    with pytest.raises(KeyError):
        pack(names.PREPROCESS, StageMessage(audio=np.zeros(3, np.int16)))


@pytest.mark.parametrize("stage", names.STAGES)
def test_every_tensor_of_a_message_has_the_declared_type(stage: str) -> None:
    kinds = {"STRING": "O", "UINT8": "u1", "INT16": "i2", "INT32": "i4", "BOOL": "?"}
    parts: dict[str, Any] = {
        "TEXT": {"text": TextDelta("a")},
        "HANDOVER": {"handover": Handover({}, {"x": np.ones(3)})},
        "TOKENS": {"tokens": np.arange(3)},
        "CODES": {"codes": np.ones((2, 16))},
        "AUDIO": {"audio": np.ones(4)},
    }
    wanted = {t.name: t for t in tensors.OUTPUTS[stage]}
    fill: dict[str, Any] = {"event": {"type": "x"}, "error": OmniError("e"), "eos": True}
    for name in wanted.keys() & parts.keys():
        fill |= parts[name]
    packed = pack(stage, StageMessage(**fill))
    assert packed.keys() == wanted.keys()
    for name, array in packed.items():
        assert array.dtype == np.dtype(kinds[wanted[name].datatype])
        assert array.ndim == len(wanted[name].dims)


@given(st.dictionaries(
    st.sampled_from([t.name for t in tensors.INPUTS[names.TALKER]]),
    st.one_of(st.binary().map(tensors.string), arrays("int32"), arrays("uint8", 2), st.just(np.empty(0, np.int32))),
))  # fmt: skip
def test_rubbish_is_a_typed_error(rubbish: dict[str, Any]) -> None:
    with contextlib.suppress(OmniError):
        unpack(rubbish)


@pytest.mark.parametrize(
    "data",
    [
        *(b'{"text":true,"tokens":1}', b'{"text":"a","tokens":1.5}', b'{"text":"a","tokens":1,"finish":"soon"}'),
        *(b'{"text":"a","tokens":1,"usage":{"prompt_tokens":"b"}}', b'{"text":"a","tokens":1,"logprobs":"ab"}'),
        *(b'{"text":"\\ud800","tokens":1}', b"[" * 100_000),
    ],
)
def test_a_bad_delta_is_refused(data: bytes) -> None:
    with pytest.raises(OmniError):
        TextDelta.loads(data)


@given(st.lists(deltas, min_size=1), st.data())
def test_merged_messages_say_the_same(parts: list[TextDelta], data: st.DataObject) -> None:
    messages = [StageMessage(text=delta, tokens=np.full(delta.tokens % 3, 7, np.int32)) for delta in parts]
    merged = messages[0]
    for later in messages[1:]:
        assert merged.joins(later)
        merged += later
    assert merged.text is not None
    assert merged.text.text == "".join(delta.text for delta in parts)
    assert merged.text.tokens == sum(delta.tokens for delta in parts)
    assert merged.tokens is not None
    assert len(merged.tokens) == sum(delta.tokens % 3 for delta in parts)


def test_nothing_is_merged_behind_an_end() -> None:
    assert not StageMessage(eos=True).joins(StageMessage(text=TextDelta("a")))
    with pytest.raises(ValueError, match="apart"):
        StageMessage(event={"a": 1}) + StageMessage(event={"b": 2})


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"op":"explode"}', b'{"op":"abort","id":7}', b"\xff"])
def test_a_bad_control_is_refused(data: bytes) -> None:
    with pytest.raises(errors.InvalidRequest):
        Control.loads(data)


def test_a_control_survives_the_wire() -> None:
    assert Control.loads(Control("abort", "x").dumps()) == Control("abort", "x")
