"""A prompt as preprocess hands it to the thinker: token ids, positions, and the media that fill its placeholders."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from omni.contract.errors import OmniError
from omni.contract.handover import Handover
from omni.contract.job import MediaKind
from omni.stages.qwen3_omni.checkpoint import Figures


@dataclass(frozen=True, slots=True, kw_only=True)
class Media:
    """One part of a prompt that isn't text."""

    kind: MediaKind
    key: str
    """Names the part together with all options that it was made with: equal keys, equal tensors and positions."""
    pixels: npt.NDArray[np.uint8] | None = None
    """RGB [frames, height, width, 3]; an image is one frame. None for a sound, and when the part is only named."""
    mel: npt.NDArray[np.float32] | None = None
    """Log-mel features [mel bins, frames] of a block of sound, or of a clip's own sound. None when there is none, and
    when the part is only named."""
    grid: tuple[int, int, int] | None = None
    """Temporal, vertical and horizontal patches of what is seen; None for a sound."""
    second_per_grid: float = 0.0
    """Seconds between two temporal patches of a clip."""
    mel_frames: int = 0
    """Frames of `mel`; 0 when nothing is heard."""
    continues: bool = False
    """Whether this is a further block of the sound before it."""

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in (self.pixels, self.mel) if array is not None)

    @property
    def named(self) -> Media:
        """The part as one names it to a thinker that was given it before."""
        return replace(self, pixels=None, mel=None)


@dataclass(frozen=True, slots=True)
class Span:
    """Where a part's placeholders stand: `length` tokens from `start` on; sound and frames of a clip are mixed."""

    start: int
    length: int
    key: str


@dataclass(frozen=True, slots=True)
class Prompt:
    """All that the thinker needs."""

    ids: npt.NDArray[np.int32]
    """[tokens]"""
    positions: npt.NDArray[np.float32]
    """Temporal, vertical and horizontal [3, tokens]; fractions of clips sampled at odd rates are kept."""
    media: tuple[Media, ...]
    """In the order of the conversation."""
    spans: tuple[Span, ...]
    """One for each of `media`."""
    use_audio_in_video: bool = False
    priority: int = 0

    @property
    def delta(self) -> float:
        """What is added to a token's number to get its position once the answer begins."""
        return float(self.positions.max()) + 1 - len(self.ids)

    def audio_tokens(self, figures: Figures) -> int:
        """Tokens that stand for sound."""
        return int((self.ids == figures.audio).sum())

    def user_mask(self, figures: Figures) -> npt.NDArray[np.bool_]:
        """Tokens of user turns [tokens]: each from its `<|im_start|>` up to the next one."""
        starts = np.maximum.accumulate(np.where(self.ids == figures.im_start, np.arange(len(self.ids)), 0))
        roles = self.ids[np.minimum(starts + 1, len(self.ids) - 1)]
        user: npt.NDArray[np.bool_] = roles == figures.user
        return user

    def media_mask(self, figures: Figures) -> npt.NDArray[np.bool_]:
        """Placeholders [tokens]."""
        return np.isin(self.ids, figures.placeholders)

    def to_handover(self) -> Handover:
        arrays: dict[str, npt.NDArray[Any]] = {"ids": self.ids, "positions": self.positions}
        media = []
        for number, one in enumerate(self.media):
            facts = {"kind": one.kind, "key": one.key, "grid": one.grid, "second_per_grid": one.second_per_grid}
            facts |= {"mel_frames": one.mel_frames, "continues": one.continues}
            for name, array in (("pixels", one.pixels), ("mel", one.mel)):
                if array is not None:
                    arrays[f"{name}_{number}"] = array
            media.append(facts)
        meta = {
            "media": media,
            "spans": [(span.start, span.length) for span in self.spans],
            "use_audio_in_video": self.use_audio_in_video,
            "priority": self.priority,
        }
        return Handover(meta, arrays)

    @classmethod
    def from_handover(cls, handover: Handover) -> Prompt:
        """Raises `OmniError` when the hand-over isn't one of this kind."""
        meta, arrays = handover.meta, handover.arrays
        try:
            media = tuple(
                Media(
                    kind=facts["kind"],
                    key=facts["key"],
                    pixels=arrays.get(f"pixels_{number}"),
                    mel=arrays.get(f"mel_{number}"),
                    grid=None if facts["grid"] is None else tuple(facts["grid"]),
                    second_per_grid=facts["second_per_grid"],
                    mel_frames=facts["mel_frames"],
                    continues=facts["continues"],
                )
                for number, facts in enumerate(meta["media"])
            )
            places = zip(meta["spans"], media, strict=True)
            spans = tuple(Span(start, length, one.key) for (start, length), one in places)
            return cls(
                arrays["ids"], arrays["positions"], media, spans, meta["use_audio_in_video"], int(meta["priority"])
            )
        except (KeyError, TypeError, ValueError):
            raise OmniError("The prompt can't be read.") from None


def lay_out(
    ids: Sequence[int], media: Sequence[Media], figures: Figures, *, use_audio_in_video: bool = False, priority: int = 0
) -> Prompt:
    """The prompt of `ids` in which every one of `media`, in order, has one placeholder, which grows to its tokens; the
    blocks of a sound share one.

    Raises ValueError when placeholders and media don't match.
    """
    draft = _Draft(figures)
    spans: list[Span] = []
    waiting = deque(media)
    text: list[int] = []
    for token in ids:
        if token not in figures.placeholders:
            text.append(token)
            continue
        one = waiting.popleft() if waiting else None
        if one is None or token != {"image": figures.image, "audio": figures.audio, "video": figures.video}[one.kind]:
            raise ValueError("placeholders and media don't match")
        draft.text(text)
        text = []
        start = draft.media(one)
        spans.append(Span(start, draft.length - start, one.key))
        while waiting and waiting[0].continues:
            block = waiting.popleft()
            start = draft.media(block)
            spans.append(Span(start, draft.length - start, block.key))
        if one.kind == "video" and one.mel_frames:
            # The end of the sound is text, that of the film follows in the template.
            text.append(figures.audio_end)
    if waiting:
        raise ValueError("placeholders and media don't match")
    draft.text(text)
    return Prompt(
        np.concatenate(draft.ids), np.concatenate(draft.positions, axis=1), tuple(media), tuple(spans),
        use_audio_in_video, priority,
    )  # fmt: skip


def sound_tokens(mel_frames: int, window: int) -> int:
    """Tokens that the audio encoder makes of so many mel frames: whole pieces make 13 each, a rest is halved thrice."""
    whole, rest = divmod(mel_frames, 2 * window)
    for _ in range(3):
        rest = (rest - 1) // 2 + 1
    return 13 * whole + rest


class _Draft:
    """Ids and positions, piece by piece, by the rules of `get_rope_index`: each piece begins one after the largest
    position of the one before, on any axis."""

    def __init__(self, figures: Figures) -> None:
        self._figures = figures
        self._next = np.float32(0)
        self.ids: list[npt.NDArray[np.int32]] = []
        self.positions: list[npt.NDArray[np.float32]] = []
        self.length = 0

    def text(self, ids: Sequence[int]) -> None:
        if len(ids):
            self._add(np.asarray(ids, np.int32), self._line(len(ids)), np.float32(len(ids) - 1) + self._next)

    def media(self, one: Media) -> int:
        """Adds the tokens of a part; returns where they begin."""
        figures = self._figures
        if one.kind == "video" and one.mel_frames:
            self.text([figures.audio_start])
            start = self.length
            self._film_with_sound(one, one.mel_frames)
            return start
        start = self.length
        if one.grid is not None:
            token = figures.image if one.kind == "image" else figures.video
            block, most = _block(one.grid, one.second_per_grid, figures)
            self._add(np.full(block.shape[1], token, np.int32), block + self._next, most + self._next)
        else:
            self.text([figures.audio] * sound_tokens(one.mel_frames, figures.audio_window))
        return start

    def _film_with_sound(self, one: Media, mel_frames: int) -> None:
        """Frames and sound in the order of time, a frame before the sound of its moment.

        The processor orders the tokens by times from the clip's start in double precision, `get_rope_index` the
        positions by float32 positions in the prompt: at odd rates the two may disagree, and so both are done here.
        After it, positions go on from the run of frames or of sound at its end, not from the largest one.
        """
        assert one.grid is not None
        figures = self._figures
        film = _block(one.grid, one.second_per_grid, figures)[0] + self._next
        sound = self._line(sound_tokens(mel_frames, figures.audio_window))
        cells = film.shape[1] // one.grid[0]
        moments = np.repeat(np.arange(one.grid[0]) * one.second_per_grid * figures.positions_per_second, cells)
        order = np.argsort(np.concatenate([moments, np.arange(sound.shape[1])]), kind="stable")
        tokens = np.repeat(np.array([figures.video, figures.audio], np.int32), [film.shape[1], sound.shape[1]])
        both = np.concatenate([film, sound], axis=1)
        placed = np.argsort(both[0], kind="stable")
        heard = placed >= film.shape[1]
        last_run = len(heard) - int(np.argmin(heard[::-1] == heard[-1])) if heard.any() and not heard.all() else 0
        self._add(tokens[order], both[:, placed], both[:, placed[last_run:]].max())

    def _line(self, count: int) -> npt.NDArray[np.float32]:
        return np.broadcast_to(np.arange(count, dtype=np.float32) + self._next, (3, count))

    def _add(self, ids: npt.NDArray[np.int32], positions: npt.NDArray[np.float32], last: np.float32) -> None:
        """`last` is the position after which the next piece begins."""
        self.ids.append(ids)
        self.positions.append(positions)
        self.length += len(ids)
        self._next = last + np.float32(1)


@lru_cache(maxsize=32)
def _block(
    grid: tuple[int, int, int], second_per_grid: float, figures: Figures
) -> tuple[npt.NDArray[np.float32], np.float32]:
    """Positions of what is seen, from 0 on [3, tokens], and the largest of them. Frames of a session are all alike, so
    that it is made once for them; not to be written to."""
    t, h, w = grid[0], grid[1] // figures.merge, grid[2] // figures.merge
    moments = np.arange(t, dtype=np.float32) * np.float32(second_per_grid)
    moments = moments * np.float32(figures.positions_per_second)
    rows, columns = np.arange(h, dtype=np.float32), np.arange(w, dtype=np.float32)
    axes = np.meshgrid(moments, rows, columns, indexing="ij")
    block: npt.NDArray[np.float32] = np.stack([axis.ravel() for axis in axes])
    return block, block.max()
