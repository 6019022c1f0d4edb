"""The codec decoder by itself: its figures at real sizes, and streaming against its own one-shot decode."""

from __future__ import annotations

import math

import pytest
import torch

from omni.contract.names import CODEC_FRAME_SAMPLES
from omni.stages.qwen3_omni.decoder import Decoder, DecoderConfig
from omni.stages.qwen3_omni.streams import Streams

pytestmark = pytest.mark.pure


def test_the_figures_of_the_real_model() -> None:
    config = DecoderConfig()
    assert config.hop == CODEC_FRAME_SAMPLES
    assert config.leads == (8, 45, 184, 555)
    with torch.device("meta"):
        parameters = sum(parameter.numel() for parameter in Decoder(config).parameters())
    assert parameters == pytest.approx(216e6, rel=0.01)
    held = sum(math.prod(shape) for shape in config.state_shapes)
    assert 4 * held == pytest.approx(2 * (2.33e6 + 0.27e6), rel=0.01), "bytes of a stream in float32"


def test_a_config_is_read_as_checkpoints_write_it() -> None:
    config = DecoderConfig.from_json(
        {"num_quantizers": 4, "upsample_rates": [2, 2], "rope_parameters": {"rope_theta": 5.0}, "model_type": ""}
    )
    assert (config.num_quantizers, config.upsample_rates, config.rope_theta) == (4, (2, 2), 5.0)
    assert DecoderConfig.from_json({"rope_theta": 7.0}).rope_theta == 7.0
    assert DecoderConfig.from_json({}) == DecoderConfig()


@torch.inference_mode()
def test_a_window_of_72_and_shared_keys_stream_exactly() -> None:
    torch.manual_seed(0)
    config = DecoderConfig(
        codebook_size=32, hidden_size=32, intermediate_size=48, num_hidden_layers=3, num_attention_heads=4,
        num_key_value_heads=2, decoder_dim=32,
    )  # fmt: skip
    decoder = Decoder(config).double().eval()
    codes = torch.randint(0, 32, (1, 180, 16))
    whole, *_ = decoder(codes, torch.zeros(1, dtype=torch.long), *config.states(1, torch.float64))
    streams = Streams(decoder, config.states(2, torch.float64))
    pieces = [streams.decode([1], piece) for piece in codes.split(7, dim=1)]
    wave = torch.cat(pieces, 1)
    assert wave.shape == whole.shape == (1, 180 * 1920)
    assert float((wave - whole)[:, config.lead :].abs().max()) < 1e-10
    assert float(whole.std()) > 1e-4
    assert (streams.position(0), streams.position(1)) == (0, 180)
