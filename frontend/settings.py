"""Every setting of the front door, in one class: command line over environment (`OMNI_*`) over file over default."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import yaml
from pydantic import BeforeValidator, ByteSize, Field, SecretStr, ValidationError, model_validator
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, CliApp, NoDecode, PydanticBaseSettingsSource, SettingsConfigDict
from pydantic_settings import SettingsError as SourceError

from omni.launch.options import own_variables

ENV_PREFIX: Final = "OMNI_"

MIB: Final = 1 << 20


class SettingsError(ValueError):
    """A setting is unknown or has a value that it can't have; the message tells an operator which."""


def _split(value: Any) -> Any:
    """A list from `a,b`, as it comes from a command line or an environment."""
    if isinstance(value, str):
        return [one for one in (piece.strip() for piece in value.split(",")) if one]
    return value


def _lower(value: Any) -> Any:
    return value.lower() if isinstance(value, str) else value


def _some(value: Any) -> Any:
    """None for nothing: an empty path would be the folder that the server happens to run in."""
    return value if value != "" else None


Folder = Annotated[Path | None, BeforeValidator(_some)]
Names = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_split)]
Secrets = Annotated[tuple[SecretStr, ...], NoDecode, BeforeValidator(_split)]
Seconds = Annotated[float, Field(gt=0, le=86_400)]
Count = Annotated[int, Field(ge=1, le=1_000_000)]
Ports = Annotated[tuple[Annotated[int, Field(ge=1, le=65_535)], ...], NoDecode, BeforeValidator(_split)]
Bytes = Annotated[ByteSize, Field(ge=1)]


class Settings(BaseSettings):
    """The front door of an omni deployment. Every option is also a variable OMNI_* and a key of the --config file."""

    model_config = SettingsConfigDict(
        env_prefix=ENV_PREFIX,
        extra="forbid",
        frozen=True,
        use_attribute_docstrings=True,
        cli_prog_name="python -m frontend",
        cli_kebab_case=True,
        cli_implicit_flags=True,
        cli_avoid_json=True,
        cli_hide_none_type=True,
    )

    config: Path | None = None
    """YAML file with any of these settings."""

    # Address
    host: str = "127.0.0.1"
    """Address to listen on; 0.0.0.0 for every interface."""
    port: int = Field(8000, ge=0, le=65_535)
    """Port to listen on; 0 takes a free one."""
    root_path: str = ""
    """Path under which a proxy serves us, when it strips that path."""
    ssl_certfile: Path | None = None
    """Certificate chain in PEM; with a key file, the front door speaks TLS."""
    ssl_keyfile: Path | None = None
    """Private key of the certificate, in PEM."""
    allowed_origins: Names = ()
    """Web origins that browsers may call us from (CORS); none by default, * for all."""
    disable_docs: bool = False
    """Don't serve /docs, /redoc and /openapi.json."""
    disable_playground: bool = False
    """Don't serve the page at /."""
    ws_max_size: Bytes = ByteSize(16 * MIB)
    """Largest WebSocket message, bytes."""
    ws_per_message_deflate: bool = False
    """Compress WebSocket messages; media doesn't shrink, so this mostly costs time."""

    # Deployment
    engine: Literal["triton", "fake"] = "triton"
    """What answers: Triton, or a scripted engine to measure the front door alone."""
    triton_url: Annotated[Names, Field(min_length=1)] = ("localhost:8001",)
    """Host and port of Triton's gRPC service; several, with commas between them, share the work."""
    profile: str = "dummy"
    """Name of the deployment's profile, or the path of its YAML file."""
    served_model_name: Names = ()
    """Model names that clients may use; the profile's own by default."""

    # Access
    api_keys: Secrets = ()
    """API keys that clients may use; without any key the server is open."""
    api_key_file: Path | None = None
    """File with one API key per line; empty lines and lines that start with # don't count."""

    # Limits
    max_in_flight: Count = 128
    """Most generations at a time; the next one is refused."""
    max_sessions: Count = 256
    """Most WebSocket sessions at a time; the next one is refused."""
    max_body_bytes: Bytes = ByteSize(256 * MIB)
    """Largest body of an HTTP request, bytes."""
    max_json_bytes: Bytes = ByteSize(2 * MIB)
    """Most bytes of a JSON body besides its media and long texts."""
    max_message_parts: Count = 4096
    """Most messages and content parts of a request, together."""
    max_head_bytes: Bytes = ByteSize(64 * 1024)
    """Largest head of an HTTP request: its line and headers, bytes."""
    max_media_bytes: Bytes = ByteSize(1024 * MIB)
    """Most bytes of media, over all requests, that wait to be delivered to Triton."""
    retry_after_s: int = Field(1, ge=1, le=3600)
    """Seconds after which a refused client is told to try again."""

    # Media
    max_media_item_bytes: Bytes = ByteSize(64 * MIB)
    """Largest image, sound or clip in a request, bytes, decoded from base64."""
    max_media_parts: Count = 64
    """Most images, sounds and clips in a request."""
    max_image_pixels: int = Field(64_000_000, ge=1, le=89_478_485)
    """Most pixels of an image, width times height; Pillow takes anything above the upper bound for an attack."""
    media_urls: bool = True
    """Fetch media from http and https URLs, at public addresses only."""
    media_url_hosts: Names = ()
    """Hosts, as name or name:port, that media may be fetched from although their addresses aren't public."""
    media_url_ports: Ports = (80, 443)
    """Ports that media may be fetched from."""
    media_url_timeout: Seconds = 30.0
    """Seconds that fetching one URL may take, with its redirects."""
    media_url_redirects: int = Field(3, ge=0, le=20)
    """Most redirects of one URL."""
    media_fetches: Count = 32
    """Most URLs that are fetched at a time, over all requests; others wait for their turn."""
    media_folder: Folder = None
    """Folder from which requests may name local files; none by default."""
    max_speech_chars: Count = 4096
    """Longest text that /v1/audio/speech reads aloud, characters."""

    # Streams
    sse_keep_alive: Seconds = 15.0
    """Seconds of silence in an event stream after which a comment keeps it alive."""
    sse_buffer_bytes: Bytes = ByteSize(16 * MIB)
    """Bytes of an event stream that may wait for its client; one that is slower than that is dropped."""

    # Realtime sessions
    realtime_dialect: Literal["openai", "beta", "sglang", "sglang-session"] = "openai"
    """What /v1/realtime speaks with clients that don't ask for a dialect."""
    realtime_buffer_s: Seconds = 300.0
    """Seconds of sound that may wait in the input buffer of a session."""
    realtime_turn_s: Seconds = 60.0
    """Seconds after which a turn that is found by its voice is split."""
    realtime_items: Count = 1_000
    """Most items of a conversation; then its oldest turns go."""
    realtime_chars: Count = 400_000
    """Most characters of a conversation; then its oldest turns go."""
    realtime_instructions_chars: Count = 32_768
    """Most characters of a session's instructions."""
    realtime_media_bytes: Bytes = ByteSize(64 * MIB)
    """Most bytes of sound and images of a conversation; then its oldest turns go."""
    realtime_image_bytes: Bytes = ByteSize(8 * MIB)
    """Largest image in a session, bytes."""
    realtime_frames: Count = 8
    """Camera frames that wait for a turn; the newest are kept."""
    realtime_responses: Count = 4
    """Most responses of a session at a time, with those outside of the conversation."""
    realtime_prefill: bool = True
    """Read images and camera frames ahead, before they are asked about."""
    realtime_idle_s: Seconds = 900.0
    """Seconds without an event of the client after which a session is closed."""
    realtime_age_s: Seconds = 3_600.0
    """Seconds after which a session is closed."""
    realtime_send_bytes: Bytes = ByteSize(32 * MIB)
    """Bytes of events that may wait for a slow client; one that is slower than that is dropped."""

    # Streaming video sessions
    video_config_timeout: Seconds = 10.0
    """Seconds that a client of /v1/video/chat/stream may take to configure its session."""
    video_idle_timeout: Seconds = 60.0
    """Seconds without a message of the client, while nothing is being answered or sent, after which it is closed."""
    video_frame_chars: Bytes = ByteSize(10 * MIB)
    """Longest frame, characters of its base64."""
    video_frames_bytes: Bytes = ByteSize(128 * MIB)
    """Most bytes of frames that a session holds; then its oldest go."""
    video_audio_bytes: Bytes = ByteSize(4 * MIB)
    """Most bytes of sound that wait for a question; PCM16 at 16 kHz, so 4 MiB are 131 seconds."""
    video_audio_overflow: Literal["clear", "drop_oldest"] = "clear"
    """What is lost when more sound comes: all of it, as the protocol has it, or only the oldest."""
    video_total_bytes: Bytes = ByteSize(4096 * MIB)
    """Most bytes of frames and sound of all sessions together; then frames are refused."""
    video_text_chars: Count = 262_144
    """Most characters of a question, and of a system prompt."""
    video_keep_newest: bool = True
    """Ask about the newest frame also when the filter dropped it as a near-duplicate."""
    video_prefill: bool = True
    """Read frames ahead, before they are asked about, when the profile reuses prefixes."""
    video_send_bytes: Bytes = ByteSize(32 * MIB)
    """Bytes of events that may wait for a slow client; one that is slower than that is dropped."""

    # Time
    generation_timeout: Seconds = 60.0
    """Seconds without a word from the stages after which a generation has failed."""
    warmup: bool = True
    """Be ready only after a synthetic generation of text, image, sound and speech has passed."""
    warmup_timeout: Seconds = 600.0
    """Seconds that one attempt of the first synthetic generation may take."""
    probe_interval: float = Field(10.0, ge=0, le=86_400)
    """Seconds between synthetic generations while no real one completes; 0 turns them off."""
    probe_timeout: Seconds = 10.0
    """Seconds that a later synthetic generation may take."""
    shutdown_timeout: float = Field(30.0, ge=0, le=86_400)
    """Seconds that running generations have to finish after SIGTERM or SIGINT."""

    # Traces
    trace_sample: float = Field(0.0, ge=0, le=1)
    """Share of requests that are traced, when their client didn't decide that itself; 0 turns tracing off."""

    # Logs
    log_level: Annotated[Literal["debug", "info", "warning", "error"], BeforeValidator(_lower)] = "info"
    """Least level that is logged."""
    log_format: Literal["json", "text"] = "json"
    """One JSON object per line, or plain text."""

    @model_validator(mode="after")
    def _check(self) -> Settings:
        if (self.ssl_certfile is None) != (self.ssl_keyfile is None):
            raise ValueError("ssl_certfile and ssl_keyfile go together")
        if self.root_path and (not self.root_path.startswith("/") or self.root_path.endswith("/")):
            raise ValueError("root_path must start with / and not end with it")
        return self

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return init_settings, env_settings, _File(settings_cls)

    def model_names(self, default: str) -> tuple[str, ...]:
        """Names that a client may give as `model`, the main one first; `default` is the profile's."""
        return self.served_model_name or (default,)


class _File(PydanticBaseSettingsSource):
    """The YAML file that the sources before it named. Raises `SettingsError` when it isn't one."""

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        return None, field_name, False

    def __call__(self) -> dict[str, Any]:
        if (path := self.current_state.get("config")) is None:
            return {}
        try:
            data = yaml.safe_load(Path(path).read_text("utf-8"))
        except (OSError, UnicodeError):
            raise SettingsError(f"config: the file {path} can't be read") from None
        except yaml.YAMLError:
            raise SettingsError(f"config: the file {path} isn't valid YAML") from None
        if not isinstance(data or {}, dict):
            raise SettingsError(f"config: the file {path} must be a mapping of settings")
        return dict(data or {})


def load(arguments: Sequence[str]) -> Settings:
    """The settings of this process.

    Raises `SettingsError`, of one line per problem, for an unknown OMNI_* variable, an unknown key of the file or an
    impossible value. Variables of the launcher are left to it. Unknown options and --help end the process, as usual
    on a command line.
    """
    known = {f"{ENV_PREFIX}{name}".upper() for name in Settings.model_fields} | own_variables()
    ours = [name for name in os.environ if name.upper().startswith(ENV_PREFIX)]
    if unknown := sorted(name for name in ours if name.upper() not in known):
        raise SettingsError("\n".join(f"{name}: there is no such setting" for name in unknown))
    try:
        return CliApp.run(Settings, cli_args=list(arguments))
    except ValidationError as problems:
        raise SettingsError(
            "\n".join(_in_words(one["loc"], one["type"], one["msg"]) for one in problems.errors())
        ) from None
    except SourceError as problem:
        raise SettingsError(str(problem)) from None


def _in_words(loc: Sequence[int | str], kind: str, message: str) -> str:
    """One line of a validation error, without the value: it may be a secret."""
    name = str(loc[0]) if loc else ""
    if kind == "extra_forbidden":
        return f"{name}: there is no such setting"
    text = message.removeprefix("Value error, ").removeprefix("Input ")
    return f"{name}: {text}" if name else text
