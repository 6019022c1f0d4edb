"""The one error tree. Every failure that a client can meet is one of these.

    OmniError                   internal_error
    ├── InvalidRequest          invalid_request           a field is missing, malformed or out of range
    │   ├── NotSupported        unsupported               understood, but this deployment doesn't do it
    │   ├── UnknownModel        model_not_found
    │   ├── InvalidMedia        invalid_media             a part can't be decoded, or isn't what it claims
    │   ├── TooLarge            too_large                 over a limit on bytes, pixels, seconds, frames or parts
    │   └── ContextExceeded     context_length_exceeded
    ├── NotAuthorized           invalid_api_key
    ├── MediaMissing            media_missing             a part named by digest is no longer held; send its bytes
    ├── Overloaded              overloaded                a bounded queue is full; try again later
    ├── Unavailable             unavailable               Triton is down, starting or draining
    ├── StageFailed             stage_failed              a stage broke while it worked on this generation
    ├── TimedOut                timeout                   nothing was heard from the stages in time
    └── Cancelled               cancelled                 the client left, barged in or asked to stop

The message of an `OmniError` is written for the client: it never holds an exception text, a path or user content
other than field names. How an error looks on a transport is the front door's business.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

UNREADABLE: Final = (ValueError, TypeError, LookupError, AttributeError, OverflowError, RecursionError)
"""What the standard library raises when bytes from another process don't hold what they should."""


class OmniError(Exception):
    """A typed failure with a stable `code` and a message that a client may read."""

    code: ClassVar[str] = "internal_error"

    def __init__(self, message: str, *, param: str | None = None, stage: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        """The request field at fault, as a client would write it: `messages.0.content.1.image_url`."""
        self.stage = stage
        """The stage that failed, or None for the front door."""

    def to_json(self) -> dict[str, str]:
        """As it travels in the ERR tensor."""
        fields = {"code": self.code, "message": self.message, "param": self.param, "stage": self.stage}
        return {key: value for key, value in fields.items() if value is not None}


class InvalidRequest(OmniError):
    code = "invalid_request"


class NotSupported(InvalidRequest):
    code = "unsupported"


class UnknownModel(InvalidRequest):
    code = "model_not_found"


class InvalidMedia(InvalidRequest):
    code = "invalid_media"


class TooLarge(InvalidRequest):
    code = "too_large"


class ContextExceeded(InvalidRequest):
    code = "context_length_exceeded"


class NotAuthorized(OmniError):
    code = "invalid_api_key"


class MediaMissing(OmniError):
    code = "media_missing"


class Overloaded(OmniError):
    code = "overloaded"


class Unavailable(OmniError):
    code = "unavailable"


class StageFailed(OmniError):
    code = "stage_failed"


class TimedOut(OmniError):
    code = "timeout"


class Cancelled(OmniError):
    code = "cancelled"


def _tree(cls: type[OmniError]) -> list[type[OmniError]]:
    return [cls, *(leaf for child in cls.__subclasses__() for leaf in _tree(child))]


BY_CODE: dict[str, type[OmniError]] = {cls.code: cls for cls in _tree(OmniError)}


def from_json(fields: Mapping[str, Any]) -> OmniError:
    """The error of an ERR tensor; a code that we don't know becomes a plain `OmniError`."""
    cls = BY_CODE.get(str(fields.get("code")), OmniError)
    return cls(str(fields.get("message", "The request failed.")), param=fields.get("param"), stage=fields.get("stage"))
