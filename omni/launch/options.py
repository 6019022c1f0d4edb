"""The launcher's settings: command line, then environment, then default."""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any

import yaml

from omni.launch.errors import LaunchError
from omni.launch.ports import Address
from omni.launch.server import HOME, HOST, LOG_BYTES, MODELS

ENV = "OMNI_"
DEMO = Path(sys.prefix) / "share" / "omni" / "demo"
"""Where `make demo` leaves the models of the demo profile."""
SHARED = ("host", "port", "profile", "shutdown_timeout")
"""What the front door's configuration file may say to us too."""


def _about(meaning: str, low: float = 0, high: float = float("inf")) -> dict[str, Any]:
    """What a field means and, for numbers, its range."""
    return {"meaning": meaning, "low": low, "high": high}


def default_profile(demo: Path = DEMO) -> str:
    """`demo` where its models are installed, else `dummy`."""
    return "demo" if demo.is_dir() else "dummy"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Every field is `--name-of-field` on the command line and `OMNI_NAME_OF_FIELD` in the environment."""

    profile: str = field(
        default=default_profile(),
        metadata=_about(
            "profile by name, or the path of a .yaml file; without it demo if that is installed, else dummy"
        ),
    )
    host: str = field(default="127.0.0.1", metadata=_about("address that the front door listens on"))
    port: int = field(default=8000, metadata=_about("port that the front door listens on; 0: a free one", 0, 65535))
    config: Path | None = field(default=None, metadata=_about("YAML file with settings of the front door"))
    triton_host: str = field(default=HOST, metadata=_about("address of Triton's gRPC and health; keep it private"))
    triton_metrics_host: str = field(default=HOST, metadata=_about("address of Triton's metrics"))
    triton_grpc_port: int = field(default=8001, metadata=_about("port of Triton's gRPC service", 0, 65535))
    triton_metrics_port: int = field(default=8002, metadata=_about("port of Triton's metrics", 0, 65535))
    triton_http_port: int = field(default=8003, metadata=_about("port of Triton's health", 0, 65535))
    model_repository: Path = field(default=MODELS, metadata=_about("folder of the models that Triton loads"))
    tritonserver: Path | None = field(
        default=None, metadata=_about("tritonserver program to use in place of the embedded one")
    )
    home: Path = field(default=HOME, metadata=_about("folder for the laid-out server and the logs"))
    start_timeout: float = field(
        default=600.0, metadata=_about("seconds that Triton or the front door may take to become ready", 1)
    )
    shutdown_timeout: float = field(
        default=30.0, metadata=_about("seconds that running generations get when the server is stopped", 0, 86_400)
    )
    exit_timeout: int = field(default=5, metadata=_about("seconds that Triton gets to end after that", 0, 86_400))
    triton_log_bytes: int = field(
        default=LOG_BYTES, metadata=_about("bytes of Triton's log before it is put aside, over the one before", 4096)
    )
    liveness_interval: float = field(
        default=10.0, metadata=_about("seconds between two tiny generations that ask Triton for life; 0: none")
    )
    liveness_deadline: float = field(default=10.0, metadata=_about("seconds that such a generation may take", 0.1))
    liveness_failures: int = field(
        default=3, metadata=_about("how many of them have to fail in a row to restart Triton", 1)
    )
    restart_limit: int = field(
        default=10, metadata=_about("restarts in a row, without a calm minute between them, before giving up")
    )

    @property
    def addresses(self) -> list[Address]:
        """Where Triton is to listen."""
        hosts = {
            "triton_grpc_port": self.triton_host,
            "triton_metrics_port": self.triton_metrics_host,
            "triton_http_port": self.triton_host,
        }
        return [Address(host, getattr(self, name), _names(name)) for name, host in hosts.items()]

    @property
    def front_address(self) -> Address:
        """Where the front door is to listen."""
        return Address(self.host, self.port, _names("port"))


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _names(name: str) -> str:
    return f"{_flag(name)} or {ENV}{name.upper()}"


def own_variables() -> frozenset[str]:
    """The environment variables that are read here, and that the front door isn't to stumble over."""
    return frozenset(ENV + option.name.upper() for option in dataclasses.fields(Options))


def _convert(option: dataclasses.Field[Any], text: str) -> Any:
    """`text` in the option's type. Raises `LaunchError` naming the setting."""
    kind = {"int": int, "float": float, "str": str}.get(str(option.type), Path)
    try:
        value = kind(text)
    except ValueError:
        raise LaunchError(f"{_names(option.name)} must be a number, not {text!r}") from None
    low, high = option.metadata["low"], option.metadata["high"]
    # Written so that nan is refused too.
    if isinstance(value, (int, float)) and not low <= value <= high:
        limits = f"at least {low:g}" if high == float("inf") else f"between {low:g} and {high:g}"
        raise LaunchError(f"{_names(option.name)} must be {limits}, not {text}")
    if not text:
        raise LaunchError(f"{_names(option.name)} must not be empty")
    return value


def parser() -> argparse.ArgumentParser:
    """The command line; values stay text until `read` has looked at the environment too."""
    out = argparse.ArgumentParser(
        prog="python -m omni.launch",
        description="Serve a profile on this machine: Triton, and the front door before it.",
        epilog="Every option can also be set in the environment: --start-timeout is OMNI_START_TIMEOUT. "
        "What follows -- goes to the front door as it is.",
        allow_abbrev=False,
    )
    out.add_argument("command", choices=("serve", "triton"), help="serve: both; triton: Triton alone")
    for option in dataclasses.fields(Options):
        default = "" if option.default is None else f" (default: {option.default})"
        out.add_argument(_flag(option.name), metavar="VALUE", help=option.metadata["meaning"] + default)
    return out


def _file(path: str) -> dict[str, str]:
    """The shared settings in the front door's file. Raises `LaunchError` when it can't be read."""
    try:
        data = yaml.safe_load(Path(path).read_text("utf-8")) or {}
    except (OSError, UnicodeError):
        raise LaunchError(f"{_names('config')}: the file {path} can't be read") from None
    except yaml.YAMLError:
        raise LaunchError(f"{_names('config')}: the file {path} isn't valid YAML") from None
    if not isinstance(data, dict):
        raise LaunchError(f"{_names('config')}: the file {path} must be a mapping of settings")
    return {name: str(data[name]) for name in SHARED if data.get(name) is not None}


def read(arguments: Sequence[str], environment: Mapping[str, str]) -> tuple[str, Options, list[str]]:
    """`(command, options, the front door's own arguments)`.

    Raises `LaunchError` for a value that isn't allowed and SystemExit, as argparse does, for an unknown option.
    """
    own = list(arguments)
    extra: list[str] = []
    if "--" in own:
        at = own.index("--")
        own, extra = own[:at], own[at + 1 :]
    given = vars(parser().parse_args(own))
    texts = {name: text for name in given if (text := environment.get(ENV + name.upper())) is not None}
    texts |= {name: text for name, text in given.items() if text is not None}
    if "config" in texts:
        texts = _file(texts["config"]) | texts
    told = [option for option in dataclasses.fields(Options) if option.name in texts]
    return given["command"], Options(**{option.name: _convert(option, texts[option.name]) for option in told}), extra
