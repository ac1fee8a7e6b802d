"""What is wrong with a request, in the vendor's words."""

from __future__ import annotations

import re
from dataclasses import dataclass

NAME = re.compile(r"[a-zA-Z0-9_-]+")
IMAGES = ("image/jpeg", "image/png", "image/gif", "image/webp")  # what both vendors take


@dataclass(frozen=True, slots=True)
class Model:
    """A model that a server offers.

    Attributes:
        context_window: tokens of input and output together.
    """

    id: str
    context_window: int = 200_000
    max_output_tokens: int = 8_192


class Refused(Exception):
    """A request that a vendor does not accept."""

    def __init__(
        self,
        message: str,
        *,
        status: int = 400,
        kind: str = "invalid_request_error",
        param: str | None = None,
        code: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.kind = kind
        self.param = param
        self.code = code
