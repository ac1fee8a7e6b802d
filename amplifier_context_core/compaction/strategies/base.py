"""What a strategy is: a draft and a goal in, a draft out, the same object when nothing changed.

A strategy sees rounds, never a flat list, so it cannot part a call from its result. It works oldest first and stops
as soon as the goal is met. Every strategy also runs by itself on a plain list of messages, for people without the
kernel: ``TruncateToolOutputs(500).compact(messages)``.

The contract, which `amplifier_context_testing.strategy_contract` tests. `trim`, `fit` and `truncate` were made for
plain lists: they aim at a limit of their own in place of the goal, recent rounds included.

- Leave what `Goal.may_touch` refuses: protected segments, and recent ones while older ones can still give.
- Keep the segments in their order. Leave some out, show some differently (`Segment.rendered_as`), or put one chapter in
  the place of neighbours (`fold`); bring in nothing else.
- Keep a call and its result together in the messages of a segment.
- Do not make the view larger, and return the same draft when there was nothing to do.
- Change no message in place: history and other views share them. Keep nothing from one call for the next.

The ladder skips a strategy that raises an exception or breaks the contract, and reports it.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from types import MappingProxyType
from typing import Any, ClassVar, Self

from ...errors import PluginError
from ...messages.parsing import Message, parse_message
from ...messages.tokens import TokenCounter, approx_token_counter, count_message_tokens
from ...rendering.renderer import RenderedMessage
from ...rendering.rounds import rounds_of
from ...rendering.summaries import Summaries
from ...transcript.transcript import Transcript
from ..checkpoint import Draft, Segment, segment_of

Score = Callable[[Message], float]


@dataclass(frozen=True, slots=True)
class Goal:
    """What a compaction wants. All tokens are as the counter counts them.

    Attributes:
        target: tokens the view should come down to.
        budget: tokens it must not exceed; 0 when a strategy runs by itself.
        recent: lowest seqs of the rounds that are recent: touched only when nothing older is left to give.
        human_tokens: tokens that people's messages keep, whatever else must go.
        protected_results: how many of the newest tool rounds keep their outputs.
        chapter_tokens: tokens that all chapters together may fill.
        focus: what the caller asked a summary to dwell on.
        folded_up_to: last seq of the newest chapter. Where `fold` takes people's messages, it takes no segment that
            begins at or before this seq; 0 for no such bound.
        ceiling: in the last pass, chapters are condensed until the view has at most this many tokens; 0 for none.
        state_tools: tools whose calls write a state, as a todo list; None to recognize them.
    """

    target: int
    budget: int
    counter: TokenCounter = approx_token_counter
    recent: frozenset[int] = frozenset()
    human_tokens: int = 0
    protected_results: int = 0
    chapter_tokens: int = 1 << 62
    summaries: Summaries = field(default_factory=dict[int, Mapping[str, str]])
    focus: str | None = None
    folded_up_to: int = 0
    ceiling: int = 0
    state_tools: tuple[str, ...] | None = None

    def met_by(self, draft: Draft) -> bool:
        return draft.tokens <= self.target

    @property
    def is_last_resort(self) -> bool:
        """True if the goal protects no recent rounds, no share of people's words, and has no `folded_up_to`."""
        return not (self.recent or self.human_tokens or self.folded_up_to)

    def may_touch(self, segment: Segment) -> bool:
        """True if the segment is neither protected nor recent."""
        return not segment.protected_because and segment.first not in self.recent


class Strategy:
    """Base of all strategies; by itself it does nothing.

    Attributes:
        name: in config, reports and events.
        counting: keyword arguments of `count_message_tokens` for a run on a plain list.
    """

    name: ClassVar[str] = "keep"
    counting: Mapping[str, Any] = MappingProxyType({"counter": approx_token_counter})
    _made_with: str = ""

    def __init_subclass__(cls) -> None:
        """Refuse a strategy whose `apply` must be awaited."""
        super().__init_subclass__()
        if inspect.iscoroutinefunction(cls.apply):
            raise PluginError(
                f"strategy {cls.__module__}.{cls.__qualname__}: `apply` is `async def`, but runs in a worker thread; "
                "write it as `def apply`, and do what must be awaited in a handler of `context:pre_compact`"
            )

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        """Note the arguments, for the repr."""
        made = super().__new__(cls)
        with contextlib.suppress(TypeError, ValueError):  # arguments that do not fit are the constructor's to refuse
            given = inspect.signature(made.__init__).bind(*args, **kwargs)
            given.apply_defaults()
            object.__setattr__(made, "_made_with", ", ".join(f"{k}={_shown(v)}" for k, v in given.arguments.items()))
        return made

    def __init__(self) -> None:
        """Take no arguments; a strategy that has some defines its own."""

    def apply(self, draft: Draft, goal: Goal) -> Draft:
        """Bring the draft nearer to the goal; return the same object if there was nothing to do.

        A compaction calls it up to four times, each time with a goal that protects less: without the recent rounds,
        then without the share of what people wrote, then without the bound `folded_up_to`. The ladder runs in a worker
        thread, and a request waits for it.
        """
        return draft

    def compact(self, messages: list[Message]) -> list[Message]:
        """Run by itself on a plain list of messages.

        System messages at the head, the task (first human message) and pinned messages always stay. The list given is
        not changed; the same list object comes back when there was nothing to do.

        Raises:
            InvalidMessage: a message is malformed.
        """
        head, draft = draft_of(messages, **self.counting)
        done = self.apply(draft, Goal(target=0, budget=0))  # all that the strategy can free
        return messages if done is draft else [*head, *done.messages]

    def __repr__(self) -> str:
        """Name the class and its arguments: sessions share checkpoints only where the ladder has the same repr."""
        return f"{type(self).__name__}({self._made_with})"


def _shown(argument: object) -> str:
    """Name a function by its name: its address in memory differs between processes."""
    return getattr(argument, "__qualname__", None) or repr(argument)


def draft_of(messages: Sequence[Message], counter: TokenCounter, **counting: Any) -> tuple[list[Message], Draft]:
    """Return the leading system messages of a plain list, and the draft of the rest, its messages as given."""
    transcript = Transcript()
    for message in messages:
        copied, info = parse_message(message)
        tokens = count_message_tokens(copied, counter, **counting)
        transcript.append(transcript.draft(copied, info, tokens, created=""))
    history = transcript.snapshot()
    leading = history.leading_count
    segments: list[Segment] = []
    for round_ in rounds_of(history[leading:]):
        shown = [RenderedMessage(messages[entry.seq - 1], entry.tokens, entry.seq) for entry in round_.entries]
        segments.append(with_protection(segment_of(round_, shown), "pinned" if round_.is_pinned else ""))
    for index in task_of(segments)[:1]:  # alone: a list must fit its window
        segments[index] = with_protection(segments[index], "task")
    fixed = sum(entry.tokens for entry in history[:leading])
    return list(messages[:leading]), Draft(tuple(segments), fixed)


def task_of(segments: Sequence[Segment]) -> list[int]:
    """Return the indices of the task: the first message of a person, and a second one before the agent does anything.

    The second is of a person who interrupts the agent to state the task again. What a host notes between them is too
    short to be folded.
    """
    humans = list(islice((index for index, segment in enumerate(segments) if segment.is_human), 2))
    between = segments[humans[0] + 1 : humans[-1]] if humans else ()
    is_restated = all(one.round is not None and one.round.head.role != "assistant" for one in between)
    return humans if is_restated else humans[:1]


def with_protection(segment: Segment, why: str) -> Segment:
    return segment if segment.protected_because == why else replace(segment, protected_because=why)


def at_least(least: int, value: int, name: str) -> int:
    """Raises `ValueError`: the argument of this name is no whole number of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ValueError(f"{name} must be a whole number of at least {least}, got {value!r}")
    return value
