"""Turn a recorded transcript into a session that can be run: prompts, answers, tool results.

A real loop takes one prompt at a time and goes on until an answer makes no calls. Recordings do more: people cut in,
assistants speak twice, results come late. What no loop can do is adapted: a user who cuts in ends the turn before,
user messages in a row become one prompt, and before an unasked assistant message the prompt is to go on.

    prepared = prepare(transcript)
    plan = prepared.plan(context="context-simple", window=100_000)
    async with session(plan) as running:
        answers = await prepared.run(running)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ..checks.message_shapes import (
    SYSTEM_ROLES,
    Message,
    blocks_of,
    calls_of,
    is_human,
    results_of,
    text_of,
    well_formed,
)
from .answer_policies import MISSING, Answer
from .transcripts import Transcript

CUT_IN = "(cut short: the recorded user spoke next)"
GO_ON = "(go on)"
AT_THE_END = "(end of the recording)"


@dataclass(frozen=True, slots=True)
class Recording:
    """The data for replaying a session.

    Attributes:
        system: leading system and developer messages, to be added before the first prompt.
        prompts: what `session.execute` is called with, one after the other.
        answers: what the provider answers, in order over all prompts; calls carry their recorded results.
        tools: names of the tools that are called, in order of appearance.
    """

    system: tuple[Message, ...]
    prompts: tuple[str, ...]
    answers: tuple[Answer, ...]
    tools: tuple[str, ...]

    @classmethod
    def of(cls, messages: Sequence[Mapping[str, Any]]) -> Recording:
        reader = _Reader(messages)
        reader.read()
        return cls(
            tuple(reader.system),
            tuple(reader.prompts),
            tuple(reader.answers),
            tuple(dict.fromkeys(call.name for answer in reader.answers for call in answer.calls)),
        )


@dataclass(frozen=True, slots=True)
class Prepared:
    """A transcript prepared for a kernel session."""

    recording: Recording
    provider: dict[str, Any]

    @property
    def prompts(self) -> tuple[str, ...]:
        """Return the prompts for `session.execute`, in order."""
        return self.recording.prompts

    def plan(self, context: str | Mapping[str, Any], *, window: int | None = None, **provider: Any) -> dict[str, Any]:
        """Return the whole mount plan.

        Args:
            window: context window the provider declares, in tokens.
        """
        entry = {**self.provider, "config": {**self.provider["config"], **provider}}
        if window is not None:
            entry["config"]["context_window"] = window
        chosen = {"module": context} if isinstance(context, str) else dict(context)
        return {
            "session": {"orchestrator": {"module": "loop-replay"}, "context": chosen},
            "providers": [entry],
            "tools": [],
        }

    async def begin(self, session: Any) -> None:
        """Add the recorded system messages to the context of an open session; call it before the first prompt."""
        for message in self.recording.system:
            await session.coordinator.get("context").add_message(dict(message))

    async def run(self, session: Any) -> list[str]:
        """Begin, then run every prompt through an open session; the loop's answers, in order."""
        await self.begin(session)
        return [await session.execute(prompt) for prompt in self.prompts]


def prepare(transcript: Transcript, **config: Any) -> Prepared:
    """Return the pieces of a session that replays a transcript.

    The provider gets the file and id of a transcript from a file, otherwise the messages themselves (with
    lone surrogates replaced: the kernel takes no plan that holds one).
    """
    where: dict[str, Any] = (
        {"messages": well_formed(transcript.messages)}
        if transcript.path is None
        else {"transcript": str(transcript.path), "id": transcript.id}
    )
    entry = {"module": "provider-replay", "config": {**where, **config}}
    return Prepared(Recording.of(transcript.messages), entry)


@dataclass(slots=True)
class _Reader:
    """Walks the messages once and keeps the state of the turn: is a prompt open, does the loop wait for an answer."""

    messages: Sequence[Mapping[str, Any]]
    system: list[Message] = field(default_factory=list[Message])
    prompts: list[str] = field(default_factory=list[str])
    answers: list[Answer] = field(default_factory=list[Answer])
    asked: list[str] = field(default_factory=list[str])  # texts of the next prompt
    running: bool = False  # the loop asks again: the last answer made calls

    def read(self) -> None:
        for index, message in enumerate(self.messages):
            role = message.get("role")
            if role in SYSTEM_ROLES:
                if not (self.prompts or self.asked or self.answers):  # inside a session no loop adds one
                    self.system.append(well_formed(dict(message)))
            elif role == "assistant":
                self._answer(index, message)
            elif role == "user":
                self._user(message)
        if self.asked:
            self._prompt()
            self.answers.append(Answer.of(AT_THE_END))
        elif self.running:
            self.answers.append(Answer.of(AT_THE_END))

    def _user(self, message: Mapping[str, Any]) -> None:
        if results_of(message) and not is_human(message):
            return
        content = message.get("content")
        own = [block for _, block in blocks_of(content) if block.get("type") != "tool_result"]
        text = content if isinstance(content, str) else text_of(own)  # prompts are text
        if not text.strip():
            return
        if self.running:
            self.answers.append(Answer.of(CUT_IN))
            self.running = False
        self.asked.append(well_formed(text))

    def _answer(self, index: int, message: Mapping[str, Any]) -> None:
        answer = Answer.of_message(well_formed(dict(message)))
        if not answer.blocks and not answer.calls:
            return
        if not self.running:
            if not self.asked:  # the assistant speaks unasked
                self.asked.append(GO_ON)
            self._prompt()
        results = dict(self._results(index))
        calls = tuple(replace(call, result=results.get(call.id, MISSING)) for call in answer.calls)
        self.answers.append(replace(answer, calls=calls))
        self.running = bool(calls)

    def _prompt(self) -> None:
        self.prompts.append("\n\n".join(self.asked))
        self.asked.clear()

    def _results(self, index: int) -> Iterator[tuple[str, Any]]:
        """Results of the calls of message `index`: by position first, since ids are used again, then by id."""
        wanted = {str(call.id) for call in calls_of(self.messages[index])}
        for later in self.messages[index + 1 :]:
            if not wanted:
                return
            if later.get("role") == "assistant":
                wanted -= {str(call.id) for call in calls_of(later)}
            for result in results_of(later):
                if str(result.id) in wanted:
                    wanted.discard(str(result.id))
                    yield str(result.id), well_formed(result.content if result.content is not None else "")
