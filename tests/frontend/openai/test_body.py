from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frontend.openai import body
from frontend.openai.body import LIFT_BYTES, JsonBody
from omni.contract.errors import InvalidRequest, TooLarge

pytestmark = pytest.mark.pure

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)


def read(data: bytes, size: int = 1 << 16) -> Any:
    reader = JsonBody()
    for at in range(0, len(data), size):
        reader.feed(data[at : at + size])
    return reader.finish()


def plain(value: Any) -> Any:
    """`value` with lifted strings as ordinary ones."""
    if isinstance(value, bytearray):
        return value.decode()
    if isinstance(value, dict):
        return {key: plain(one) for key, one in value.items()}
    return [plain(one) for one in value] if isinstance(value, list) else value


@given(JSON, st.integers(1, 40), st.integers(0, 12), st.booleans())
def test_it_reads_what_a_json_parser_reads_however_it_is_cut(value: Any, size: int, lift: int, ascii: bool) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(body, "LIFT_BYTES", lift)
        assert plain(read(json.dumps(value, ensure_ascii=ascii).encode(), size)) == value


def test_a_long_data_url_and_long_base64_are_lifted_and_never_become_text() -> None:
    url = "data:image/png;base64," + "A" * LIFT_BYTES
    read_back = read(json.dumps({"url": url, "data": "B" * (2 * LIFT_BYTES), "short": "data:x"}).encode(), 1000)
    assert isinstance(read_back["url"], bytearray)
    assert read_back["url"] == url.encode()
    assert read_back["data"] == b"B" * (2 * LIFT_BYTES)
    assert read_back["short"] == "data:x"


@pytest.mark.parametrize("size", [1, 2, 3, 1000, 1 << 20])
def test_escaped_slashes_are_slashes_also_in_what_is_lifted(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As PHP writes JSON."""
    monkeypatch.setattr(body, "LIFT_BYTES", 64)
    url = "data:image/png;base64," + "A/+/" * 100
    text = json.dumps({"url": url, "text": 'a/\\/\\\\/"/', "/": "/"}).replace("/", "\\/").encode()
    read_back = read(text, size)
    assert read_back == {"url": url.encode(), "text": 'a/\\/\\\\/"/', "/": "/"}
    assert isinstance(read_back["url"], bytearray)


def test_what_is_not_lifted_is_bounded() -> None:
    small = JsonBody(1000)
    small.feed(b'{"url": "data:' + b"A" * 100_000 + b'", "text": "')
    with pytest.raises(TooLarge, match="1000 bytes"):
        small.feed(b'short", "list": [' + b"1," * 500)


def test_other_long_strings_stay_text() -> None:
    value = {"text": "ü" * LIFT_BYTES, "lines": "line\n" * LIFT_BYTES}
    assert read(json.dumps(value, ensure_ascii=False).encode()) == value


def test_a_string_that_looks_like_the_mark_of_another_body_is_left_alone() -> None:
    other = JsonBody()
    value = {"text": f"{other._mark}0", "url": "data:" + "A" * LIFT_BYTES}
    assert read(json.dumps(value).encode())["text"] == value["text"]


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b'{"a":}', b'"' + b"A" * 70_000, b'"\xff"', b'"' + b"\xff" * 70_000 + b'"', b"[" * 5000, b'"\\ud800"'],
)
def test_what_is_not_json_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidRequest) as refusal:
        read(data)
    assert refusal.value.message == "The body must be valid JSON in UTF-8."
