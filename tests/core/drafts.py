"""Transcripts, rounds, drafts and rendered views made of plain messages."""

from collections.abc import Iterable
from typing import Any

from amplifier_context_core.compaction.checkpoint import DigestEntry, Draft, Segment, segment_of
from amplifier_context_core.compaction.digest import digest_round
from amplifier_context_core.messages.parsing import SYSTEM_ROLES, parse_message
from amplifier_context_core.messages.tokens import approx_token_counter, count_message_tokens
from amplifier_context_core.rendering.renderer import RenderedMessage, RenderedRound, Renderer
from amplifier_context_core.rendering.rounds import Round, rounds_of
from amplifier_context_core.transcript.transcript import Transcript
from amplifier_context_testing import check_request
from tests.messages import Message, call, result, says, system, user


def transcript(messages: Iterable[Message], session_id: str = "s") -> Transcript:
    """A transcript of these messages, counted by the heuristic."""
    made = Transcript(session_id)
    for raw in messages:
        message, info = parse_message(raw)
        made.append(made.draft(message, info, count_message_tokens(message), created="2026-01-01T00:00:00.000+00:00"))
    return made


def rounds(*messages: Message) -> list[Round]:
    return rounds_of(transcript(messages).snapshot())


def rounds_after_instructions(messages: Iterable[Message]) -> list[Round]:
    """The rounds without leading instructions; an entry's seq is the place of its message, from 1."""
    entries = list(transcript(messages).snapshot())
    leading = next((place for place, entry in enumerate(entries) if entry.role not in SYSTEM_ROLES), len(entries))
    return rounds_of(entries[leading:])


def segments(*messages: Message) -> list[Segment]:
    """Return a segment for each round, shown as stored."""
    return [
        segment_of(round_, [RenderedMessage(entry.message, entry.tokens, entry.seq) for entry in round_.entries])
        for round_ in rounds(*messages)
    ]


def digests(*messages: Message, share: float = 0.25, **more: Any) -> list[DigestEntry]:
    """Return the entry of a chapter for each round."""
    known: set[str] = set()
    return [digest_round(one, known, approx_token_counter, share=share, **more) for one in rounds(*messages)]


def draft(*messages: Message, fixed: int = 0) -> Draft:
    return Draft(tuple(segments(*messages)), fixed)


LONG = "\n".join(f"row {number:04d} of the table" for number in range(200))
PINNED = {"pinned": True}


def talk(rounds: int = 6, output: str = LONG) -> list[Message]:
    """A system prompt, the task, tool rounds with a word between them, another prompt, an answer."""
    messages = [system("Be careful."), user("The task: fix src/loader.py.")]
    for number in range(rounds):
        messages += [call(f"c{number}", path=f"src/m{number}.py"), result(f"c{number}", f"{number}\n{output}")]
    return [*messages, says("Half way."), user("Go on."), call("last"), result("last", output), says("Done.")]


def score(message: Message) -> float:
    return 10.0 if "important" in str(message.get("content")) else 1.0


def renderings(*messages: Message, **settings: Any) -> list[RenderedRound]:
    """Every round rendered, ids claimed in order."""
    settings = {"output_limit": 100_000, **settings}
    renderer = Renderer(approx_token_counter, **settings)
    history = transcript(messages)
    for entry in history.snapshot():
        renderer.register_calls(entry)
    return [renderer.render(round_) for round_ in rounds_of(history.snapshot())]


def shown(*messages: Message, **settings: Any) -> list[Message]:
    return [one.message for rendering in renderings(*messages, **settings) for one in rendering.messages]


def fixes(*messages: Message, **settings: Any) -> list[str]:
    return [fix for rendering in renderings(*messages, **settings) for fix in rendering.fixes]


def valid(*messages: Message, **settings: Any) -> list[Message]:
    """The messages as shown after a prompt, held to every provider's rules."""
    view = shown(user("Start."), *messages, **settings)
    assert check_request(view) == []
    return view[1:]


GIANT = "\n".join(f"row {number:05d}" for number in range(5_000))
