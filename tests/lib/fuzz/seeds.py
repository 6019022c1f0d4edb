"""Good inputs, from which bad ones are made: one of every kind that the other tests use."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Mapping
from functools import cache
from typing import Any

import av
import numpy as np
from PIL import Image
from support.samples import film, picture, sound

from fuzz.targets import DIALECTS, EDGE, FILES, Pieces
from omni.contract.chunk import TextDelta, Usage
from omni.contract.errors import StageFailed
from omni.contract.handover import Handover
from omni.contract.job import Job, MediaPart, Message, TextPart, VideoOptions, pack_job
from omni.contract.names import CODE2WAV, TALKER, THINKER
from omni.contract.params import SamplingParams, Settings
from omni.contract.tensors import Control, StageMessage, pack

IMAGES = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "AVIF", "ICO", "PPM")
SETTINGS = Settings(
    speech=True,
    sampling={
        THINKER: SamplingParams(temperature=0.5, top_p=0.9, top_k=5, stop=("x",), seed=3, logit_bias={5: 1.0}),
        TALKER: SamplingParams(max_tokens=100, logprobs=2),
    },
    stage={TALKER: {"voice": "Ethan"}, CODE2WAV: {"max_chunk_frames": 5}},
    lease="a",
    session="b",
    trace="00-" + "1" * 32 + "-" + "2" * 16 + "-01",
)
MICROPHONE = base64.b64encode(np.full(3000, 5, "<i2").tobytes()).decode()
SILENCE = base64.b64encode(bytes(12000)).decode()


def _json(*values: Any) -> Pieces:
    return [json.dumps(value).encode() for value in values]


def _url(data: bytes, kind: str) -> str:
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"


def _compressed(container: str, codec: str, layout: str = "mono") -> bytes:
    out = io.BytesIO()
    with av.open(out, "w", format=container) as file:
        stream = file.add_stream(codec, rate=48_000, layout=layout)
        channels = av.AudioLayout(layout).nb_channels
        frame = av.AudioFrame.from_ndarray(np.zeros((1, 4800 * channels), np.int16), "s16", layout)
        frame.sample_rate = 48_000
        for packet in [*stream.encode(frame), *stream.encode()]:
            file.mux(packet)
    return out.getvalue()


def _images() -> list[bytes]:
    still = [picture((20, 12), format=format) for format in IMAGES]
    out = io.BytesIO()
    turned = Image.new("RGB", (20, 12))
    turned.getexif()[274] = 6
    turned.save(out, "JPEG", exif=turned.getexif())
    deep = io.BytesIO()
    Image.new("I;16", (8, 8)).save(deep, "TIFF")
    seen_through = picture((8, 8), "#00ff0080", mode="RGBA")
    return [*still, out.getvalue(), deep.getvalue(), seen_through, picture((8, 8), mode="P")]


def _sounds() -> list[bytes]:
    kinds = {"mp3": "libmp3lame", "flac": "flac", "ogg": "libopus", "adts": "aac", "aiff": "pcm_s16be"}
    kinds |= {"matroska": "libopus", "mp4": "aac"}
    return [
        sound(0.05),
        sound(0.02, 8000, 2),
        *(_compressed(*kind) for kind in kinds.items()),
        _compressed("adts", "aac", "7.1"),
    ]


def _films() -> list[bytes]:
    kinds = (("mp4", "libx264"), ("matroska", "libvpx"), ("avi", "mpeg4"), ("mov", "mpeg4"))
    return [film(4, (32, 16), container, codec) for container, codec in kinds]


def _media() -> list[Pieces]:
    files: Mapping[str, list[bytes]] = {"image": _images(), "audio": _sounds(), "video": _films()}
    by_reader = dict(zip(FILES, ("image", "audio", "video", "image", "audio", "image", "audio", "video"), strict=True))
    return [[bytes([FILES.index(who)]), data] for who, kind in by_reader.items() for data in files[kind]]


def _jobs() -> list[Pieces]:
    media = (MediaPart.of("image", picture((8, 8)), "a"), MediaPart.of("audio", sound(0.01), "b", 3.0))
    parts = (TextPart("What?"), *media, MediaPart.of("video", b"z" * 40).by_digest())
    messages = (Message("system", (TextPart("Be kind."),)), Message("user", parts), Message("assistant", ()))
    whole = Job(id="x", messages=messages, video=VideoOptions(fps=2, max_frames=8, use_audio=True), priority=-1)
    out = []
    for job in (whole, Job(id="x", messages=(Message("user", (TextPart("hi"),)),))):
        data, blob = pack_job(job)
        out.append([data, blob.tobytes(), SETTINGS.dumps().encode()])
    data, blob = pack_job(whole)
    cut = np.array_split(blob, 4)
    numbered = [bytes([seq]) + cut[seq].tobytes() for seq in (2, 1, 3)]
    return [*out, [data, cut[0].tobytes(), SETTINGS.dumps().encode(), *numbered]]


def _edges() -> list[Pieces]:
    usage = Usage(5, 6, 1, 2)
    logprobs = ({"token": "a", "logprob": -0.5, "bytes": [97], "top_logprobs": []},)
    handover = Handover({"prompt": [1, 2]}, {"ids": np.arange(6, dtype=np.int32), "hidden": np.ones((2, 3), "<f4")})
    by_stage = {
        "preprocess": [StageMessage(handover=handover, event={"type": "prompt", "prompt_tokens": 5})],
        "thinker": [
            StageMessage(text=TextDelta("a", 1, logprobs=logprobs), tokens=np.array([1], np.int32)),
            StageMessage(text=TextDelta("b", 1), tokens=np.array([2], np.int32), handover=handover),
            StageMessage(text=TextDelta("", 0, "stop", usage), tokens=np.array([3, 4], np.int32), eos=True),
        ],
        "talker": [
            StageMessage(codes=np.zeros((2, 16), np.int32), text=TextDelta("b", 1)),
            StageMessage(error=StageFailed("It broke.", stage="talker"), eos=True),
        ],
    }
    out = []
    for number, (stage, messages) in enumerate(by_stage.items()):
        pieces = [bytes([number])]
        for seq, message in enumerate(messages):
            packed = pack(stage, message)
            packed["SEQ"] = np.array([seq], np.int32)
            for name in EDGE:
                array = packed.get(name)
                raw = b"" if array is None else array[0] if array.dtype == object else array.tobytes()
                pieces.append(raw)
        out.append(pieces)
    return out


def _chats() -> list[Pieces]:
    image, wav, clip = picture((8, 8)), sound(0.01), film(1, (16, 16))
    content = [
        {"type": "text", "text": "What is it?"},
        {"type": "image_url", "image_url": {"url": _url(image, "image/png")}},
        {"type": "input_audio", "input_audio": {"data": base64.b64encode(wav).decode(), "format": "wav"}},
        {"type": "audio_url", "audio_url": {"url": _url(wav, "audio/wav")}},
        {"type": "video_url", "video_url": {"url": _url(clip, "video/mp4")}},
    ]
    sampling = {"temperature": 0.5, "top_p": 0.9, "top_k": 5, "min_p": 0.1, "seed": 3, "stop": ["a", "b"], "n": 1}
    sampling |= {"max_completion_tokens": 10, "logprobs": True, "top_logprobs": 2, "logit_bias": {"5": 1.0}}
    own = {"stage_sampling": {"talker": {"top_k": 3}}, "stage_params": {"thinker": {"token_interval_ms": 1.0}}}
    own |= {"video_fps": 2.0, "video_max_frames": 4, "use_audio_in_video": True, "talker_temperature": 0.3}
    spoken = {"modalities": ["text", "audio"], "audio": {"voice": "Ethan", "format": "wav"}, "stream": True}
    spoken |= {"stream_options": {"include_usage": True}}
    system = {"role": "system", "content": "Be kind."}
    reply = {"role": "assistant", "content": [{"type": "text", "text": "Yes."}]}
    asked = {"messages": [system, {"role": "user", "content": content}, reply], "model": "qwen3-omni"}
    short = {"messages": [{"role": "user", "content": "hi"}]}
    bare = {"images": [_url(image, "image/png")], "audios": [base64.b64encode(wav).decode()]}
    tools = {"tools": [{"type": "function", "function": {"name": "f"}}], "tool_choice": "none"}
    return [_json(asked | sampling | own | spoken), _json(short | bare), _json(short | tools | own), _json(short)]


def _realtime() -> list[Pieces]:
    shown = base64.b64encode(picture((16, 8), format="JPEG")).decode()
    heard = {"format": {"type": "audio/pcm", "rate": 24000}, "transcription": {}}
    vad = {"type": "server_vad", "threshold": 0.5, "silence_duration_ms": 100, "idle_timeout_ms": 5000}
    session = {"type": "realtime", "output_modalities": ["audio"], "instructions": "Be kind.", "max_output_tokens": 9}
    session |= {"audio": {"input": heard | {"turn_detection": vad}, "output": {"voice": "Ethan", "speed": 1.0}}}
    flat = {"modalities": ["text", "audio"], "voice": "Ethan", "input_audio_format": "g711_ulaw", "temperature": 0.8}
    flat |= {"turn_detection": None, "input_audio_transcription": {"model": "x"}, "output_audio_format": "g711_alaw"}
    parts = [{"type": "input_text", "text": "What?"}, {"type": "input_audio", "audio": MICROPHONE}]
    parts += [{"type": "input_image", "image_url": f"data:image/jpeg;base64,{shown}"}]
    item = {"id": "item", "type": "message", "role": "user", "content": parts}
    append = {"type": "input_audio_buffer.append", "audio": MICROPHONE}
    silence = {"type": "input_audio_buffer.append", "audio": SILENCE}
    commit = {"type": "input_audio_buffer.commit", "event_id": "e1"}
    wanted = {"output_modalities": ["text"], "conversation": "none", "input": [item], "metadata": {"a": "b"}}
    frame = {"type": "sglang.input_image.append", "image": shown, "sglang": {"t_ms": 20, "unit_id": "u"}}
    talks = [
        [{"type": "session.update", "session": session}, append, append, silence, silence],
        [{"type": "session.update", "session": flat}, append, commit, {"type": "response.create"}],
        [
            {"type": "conversation.item.create", "previous_item_id": "root", "item": item},
            {"type": "response.create", "response": wanted},
            {"type": "conversation.item.truncate", "item_id": "item", "content_index": 0, "audio_end_ms": 50},
            {"type": "conversation.item.retrieve", "item_id": "item"},
            {"type": "response.cancel", "response_id": "x"},
            {"type": "conversation.item.delete", "item_id": "item"},
            {"type": "input_audio_buffer.clear"},
        ],
        [
            {"type": "session.update", "session": session | {"sglang": {"profile": "omni"}}},
            frame, append | {"sglang": {"t_ms": 10}}, commit, {"type": "response.create", "response": {}},
        ],
    ]  # fmt: skip
    return [[bytes([dialect]), *_json(*talk)] for dialect in range(len(DIALECTS)) for talk in talks]


def _video() -> list[Pieces]:
    shown = [base64.b64encode(picture((16, 8), colour, "JPEG")).decode() for colour in ("#000000", "#ffffff")]
    config = {"type": "session.config", "modalities": ["text", "audio"], "num_frames": 2, "max_frames": 4}
    config |= {"enable_frame_filter": True, "frame_filter_threshold": 0.9, "system_prompt": "Be kind."}
    config |= {"sampling_params": {"temperature": 0.5}, "use_audio_in_video": False, "voice": "Ethan"}
    frames = [{"type": "video.frame", "data": data, "frame_id": data[-5:], "pts_ms": 40} for data in shown]
    sound = {"type": "audio.chunk", "data": base64.b64encode(bytes(640)).decode()}
    query = {"type": "video.query", "text": "What?", "audio_data": sound["data"]}
    end = {"type": "video.done"}
    return [
        _json(config, *frames, sound, query, frames[0], query, end),
        _json({"type": "session.config"}, query, {"type": "ping"}, end),
    ]


@cache
def seeds() -> dict[str, list[Pieces]]:
    """By target."""
    form = ["model", "qwen3-omni", "response_format", "json", "language", "en", "temperature", "0.5", "stream", "true"]
    form += ["include[]", "logprobs", "prompt", "Hello", "timestamp_granularities[]", "segment"]
    reading = {"input": "Hello there", "voice": "Ethan", "response_format": "wav", "speed": 1.0, "instructions": "low"}
    return {
        "job": _jobs(),
        "edge": _edges(),
        "control": [
            [
                Control("lease", "a").dumps(),
                TextDelta("a", 1, "stop", Usage(1, 2, 3, 4)).dumps(),
                SETTINGS.dumps().encode(),
            ]
        ],
        "media": _media(),
        "sound": [[bytes([n]), bytes(range(256)), b"\x01", b"\x00\x80\xff\x7f"] for n in range(3)],
        "chat": _chats(),
        "speech": [[*_json(reading), *(text.encode() for text in form)]],
        "realtime": _realtime(),
        "video": _video(),
    }
