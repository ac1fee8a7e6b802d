"""The meter: token counts before a request, corrected by the usage the provider reports after it.

Per (provider, model) it learns an offset (tools, instructions: what is sent beside the messages) and a ratio (another
tokenizer than ours). Both are bounded, so that one odd report does little harm. A refused request ("too long") teaches
it a smaller window.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..messages.usage import Usage, measured

Key = tuple[str, str]  # (provider, model); empty where unknown

MIN_RATIO, MAX_RATIO = 0.5, 3.0  # provider's tokens for one of ours
_OFFSET_BOUND = 0.6  # of the measured request: what tools and instructions may cost at most
_OFFSET_OF_BUDGET = 0.9  # and of a budget, so that one odd report leaves a view a part of it
_STEP = 500  # tokens the view must have changed by before a ratio is read off two requests
_LEARNING = 0.5  # weight of a new ratio against the old one
_PRIOR_RATIO = 1.1  # other tokenizers than OpenAI's count more for the same text; corrected by the first report
_REFUSED_SHARE = 0.9  # of a refused request's size: what the next one may be
_MAX_MODELS = 256  # providers and models that are remembered
_MIN_WINDOW = 256  # tokens; refusals cannot teach a smaller one
_OPENAI = ("openai", "azure", "gpt", "copilot")
_ROUNDING = 1e-6  # tokens; what floating point may add to a sum of whole tokens


@dataclass(frozen=True, slots=True)
class Prices:
    """What a model charges for tokens of a prompt cache, in prices of a plain input token."""

    read: float
    write: float

    @property
    def rewrite(self) -> float:
        return max(0.0, self.write - self.read)


USUAL_PRICES = Prices(0.1, 1.25)  # of Anthropic and of OpenAI from GPT-5.6 on (docs/caching.md)


@dataclass(slots=True)
class Correction:
    """What was learned of one (provider, model)."""

    offset: float = 0.0
    ratio: float = 1.0  # provider's tokens for one of ours
    reports: int = 0
    # Assumed context window (provider's tokens), lowered after a refused request; None before the first refusal.
    window: int | None = None
    last: tuple[int, int] | None = None  # tokens counted and tokens measured of the newest report


@dataclass(frozen=True, slots=True)
class Units:
    """Converts tokens as this package counts them to tokens as a provider reports them, as known at one moment.

    Every figure that a person or an event reads goes through here, once. A size is rounded up and a limit down, so
    that what is above a limit as counted is above it as reported, too.
    """

    offset: float = 0.0  # reported tokens that are sent beside the messages, such as tool definitions
    ratio: float = 1.0  # reported tokens for one counted token
    measured: bool = False  # the provider has reported usage; otherwise both are assumptions

    @classmethod
    def exact(cls, counted: int, reported: int, ratio: float) -> Units:
        """Return the conversion under which a request of `counted` tokens is reported with exactly `reported` tokens.

        `ratio` is for what the offset leaves open.
        """
        if reported < ratio * counted:  # the count is too high: there is no negative offset
            return cls(0.0, reported / counted, measured=True)
        return cls(reported - ratio * counted, ratio, measured=True)

    def request(self, counted: int) -> int:
        """Return the reported size of a whole request whose messages have so many counted tokens."""
        return math.ceil(self.offset + self.ratio * counted - _ROUNDING)

    def limit(self, counted: int) -> int:
        """Return what a limit on the counted tokens of a request's messages is as a limit on its reported size."""
        return math.floor(self.offset + self.ratio * counted + _ROUNDING)

    def part(self, counted: int) -> int:
        return round(self.ratio * counted)

    def capacity(self, reported: int) -> int:
        """Return the counted tokens that a view may have, so that its request has at most so many reported ones."""
        return max(1, int((reported - min(self.offset, _OFFSET_OF_BUDGET * reported)) / self.ratio))

    @property
    def overhead(self) -> int:
        """Reported tokens that are sent beside the messages."""
        return self.request(0)


class Meter:
    """Estimates what a view will cost at its provider."""

    def __init__(self, *, learn: bool = True) -> None:
        self.learn = learn
        self.corrections: dict[Key, Correction] = {}
        self._prices: dict[Key, Prices] = {}  # as the providers named them; not saved, they name them again

    def correction(self, key: Key) -> Correction:
        """Return what was learned, to be changed; it begins as `known` has it."""
        found = self.known(key)
        if len(self.corrections) < _MAX_MODELS:
            self.corrections.setdefault(key, found)
        return found

    def known(self, key: Key) -> Correction:
        """Return what was learned of this provider and model, or of another model of the provider, or a prior."""
        found = self.corrections.get(key)
        if found is not None:
            return found
        name = " ".join(key).lower()
        prior = 1.0 if not key[0] or any(part in name for part in _OPENAI) or not self.learn else _PRIOR_RATIO
        same = [c for (provider, _), c in self.corrections.items() if provider == key[0] and c.reports]
        return Correction(same[-1].offset, same[-1].ratio) if same and not key[1] else Correction(ratio=prior)

    def units(self, key: Key) -> Units:
        """Reading it changes nothing."""
        known = self.known(key)
        return Units(known.offset, known.ratio, known.reports > 0)

    def prices(self, key: Key) -> Prices:
        """As the model's provider named them; else what is usual."""
        return self._prices.get(key, USUAL_PRICES)

    def note_prices(self, key: Key, prices: Prices) -> None:
        if key in self._prices or len(self._prices) < _MAX_MODELS:
            self._prices[key] = prices

    def estimate(self, counted: int, key: Key) -> int:
        """Return the tokens that the provider is expected to report."""
        return self.units(key).request(counted)

    def accepted(self, budget: int, key: Key) -> int:
        """Return the reported tokens a request may have: `budget`, or less where the provider refused a smaller one."""
        window = self.known(key).window
        return budget if window is None else min(budget, window)

    def report(self, counted: int, usage: Usage, key: Key) -> None:
        size = measured(usage)
        if not self.learn or counted < 1 or size < 1:
            return
        known = self.correction(key)
        last, known.last = known.last, (counted, size)
        if last and abs(counted - last[0]) >= _STEP:
            seen = (size - last[1]) / (counted - last[0])
            if MIN_RATIO <= seen <= MAX_RATIO:
                known.ratio += _LEARNING * (seen - known.ratio)
        elif known.reports == 0:
            known.ratio = 1.0  # the prior ends with the first report; the offset below takes up the difference
        if size < known.ratio * counted:  # the count is too high: there is no negative offset
            known.ratio = max(MIN_RATIO, size / counted)
        # A short first prompt says nothing about the ratio: tools and instructions may be most of that request.
        bound = _OFFSET_BOUND if counted >= _STEP else 1.0
        known.offset = min(max(0.0, size - known.ratio * counted), bound * size)
        if size > (known.offset + known.ratio * counted):
            known.ratio = min(MAX_RATIO, (size - known.offset) / counted)
        known.reports += 1
        if known.window is not None and size > known.window:
            known.window = size  # it was accepted after all

    def refused(self, counted: int, key: Key) -> int:
        """A view was too long for its provider; return the window assumed now (provider's tokens)."""
        known = self.correction(key)
        size = self.estimate(counted, key)
        smaller = int(size * _REFUSED_SHARE)
        known.window = max(_MIN_WINDOW, min(smaller, known.window or smaller))
        return known.window
