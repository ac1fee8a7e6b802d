"""What is wrong with a request, in the vendor's words."""

from __future__ import annotations

import base64
import binascii
import re
from dataclasses import dataclass

NAME = re.compile(r"[a-zA-Z0-9_-]+")
IMAGES = ("image/jpeg", "image/png", "image/gif", "image/webp")  # what both vendors take


@dataclass(frozen=True, slots=True)
class Model:
    """A model that a server offers; `context_window` is tokens of input and output together."""

    id: str
    context_window: int = 200_000
    max_output_tokens: int = 8_192


class Refused(Exception):
    """A request that a vendor does not accept: its words, OpenAI's code, the HTTP status and the vendor's type."""

    def __init__(
        self, message: str, code: str | None = None, *, status: int = 400, kind: str = "invalid_request_error"
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.status = status
        self.kind = kind


def is_base64(text: str) -> bool:
    try:
        base64.b64decode(text, validate=True)
    except binascii.Error:
        return False
    return True
