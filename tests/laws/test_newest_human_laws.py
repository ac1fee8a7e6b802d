"""Laws of the newest human message: whole whenever it fits beside the system prompt and an eighth of the budget."""

from __future__ import annotations

from hypothesis import assume, example, given
from hypothesis import strategies as st

from amplifier_context_core import ContextManager
from amplifier_context_testing import checked

from .managers import counting, new_manager, tokens_of
from .operations import Message, clips_needlessly

Turn = tuple[str, int]  # what comes next, and its size in thousandths of the budget

SIZES = st.one_of(st.integers(1, 200), st.integers(1, 1_000))
STEPS = st.lists(
    st.tuples(st.sampled_from(["person", "answer", "call", "call", "open call", "notice", "state"]), SIZES), max_size=14
)
BUDGETS = st.integers(300, 6_000)


def text(name: str, tokens: int) -> str:
    """Text of about so many tokens, whose words differ, so that a cut shows."""
    return " ".join(f"{name}{number}" for number in range(max(1, tokens * 4 // (len(name) + 4))))


def messages_of(step: Turn, number: int, budget: int) -> list[Message]:
    """Return the messages of a step; each text has the number of its step."""
    kind, share = step
    words = text(f"s{number}x", share * budget // 1_000)
    call = {"id": f"c{number}", "name": "todo" if kind == "state" else "bash", "arguments": {"n": number}}
    result = {"role": "tool", "tool_call_id": f"c{number}", "content": words}
    match kind:
        case "person":
            return [{"role": "user", "content": words}]
        case "answer":
            return [{"role": "assistant", "content": words}]
        case "notice":
            source = {"source": "hook", "hook_name": f"hook{number % 2}"}
            return [{"role": "user", "content": words, "metadata": source}]
        case "state":
            call["arguments"] = {"todos": [{"content": words, "status": "pending"}]}
            return [{"role": "assistant", "content": "", "tool_calls": [call]}, {**result, "content": "saved"}]
        case "open call":
            return [{"role": "assistant", "content": words, "tool_calls": [call]}]
        case _:
            return [{"role": "assistant", "content": f"step {number}", "tool_calls": [call]}, result]


def fits(human: Message, system: list[Message], capacity: int) -> bool:
    """True if the message fits beside the system prompt and an eighth of the capacity."""
    return tokens_of(human) <= capacity - capacity // 8 - tokens_of(*system)


def shows(view: list[Message], human: Message) -> bool:
    return any(message["role"] == "user" and message["content"] == human["content"] for message in view)


def needs_all(manager: ContextManager, view: list[Message], human: Message) -> bool:
    """True if the message would not fit beside the rest of the view, of which none is large enough to be clipped."""
    sent = manager.compactor.last_sent
    assert sent is not None
    *_, entry = (entry for entry in manager.snapshot() if entry.message["content"] == human["content"])
    rest = [message for message in view if not str(message["content"]).startswith(human["content"][:20])]
    is_small = all(tokens_of(message) <= 60 or "<context_record" in str(message["content"]) for message in rest[1:])
    return is_small and not clips_needlessly(sent, entry)


TASK_AND_ROUNDS: list[Turn] = [("person", 90), ("answer", 1), ("person", 635), *[("call", 173)] * 12]


@given(STEPS, BUDGETS, BUDGETS, st.integers(0, 400), st.sampled_from([0.3, 0.4, 0.7, 0.92]))
@example(TASK_AND_ROUNDS, 6_500, 6_500, 10, 0.92)  # clipped to let the rounds after it grow
@example([("person", 663)], 6_000, 6_000, 0, 0.4)  # alone, and above the size at which a view is compacted
@example([("person", 730)], 529, 661, 0, 0.3)  # clipped for the first budget, and too large for the threshold of both
@example([("person", 20)] * 3 + [("notice", 300), ("person", 80)], 900, 900, 0, 0.4)
async def test_every_view_shows_the_newest_human_message_whole_where_it_fits(
    steps: list[Turn], first: int, second: int, share: int, threshold: float
) -> None:
    manager = new_manager(compact_threshold=threshold)
    system: list[Message] = [{"role": "system", "content": text("rule", share * min(first, second) // 1_000)}]
    await manager.add_message(system[0])
    human: Message | None = None
    for number, step in enumerate(steps):
        for message in messages_of(step, number, max(first, second)):
            await manager.add_message(message)
            human = message if step[0] == "person" else human
        for budget in (first, second):
            view = await manager.get_messages_for_request(token_budget=budget)
            if human is not None and fits(human, system, budget):
                assert shows(checked(view), human) or needs_all(manager, view, human)


async def measured(manager: ContextManager, limit: int) -> list[Message]:
    """Return the view of a request that its provider counts, and takes up to this limit (tokens)."""
    result = await manager.measured_request_view(count_view=counting(limit=limit))
    assert await result["transaction"].commit()
    return result["base_view"]


LIMITS = st.lists(st.integers(300, 4_000), min_size=1, max_size=8)


@given(st.integers(10, 900), LIMITS, st.lists(st.integers(1, 60), min_size=8, max_size=8))
@example(119, [400, 4_000], [3] * 8)
async def test_a_message_that_a_limit_clipped_is_whole_again_once_the_limit_is_gone(
    share: int, limits: list[int], sizes: list[int]
) -> None:
    budget = 4_000
    manager = new_manager(max_tokens=budget)
    (human,) = messages_of(("person", share), 0, budget)
    await manager.add_message(human)
    for number, size in enumerate(sizes, 1):
        limit = limits[number % len(limits)]
        view = await measured(manager, limit)
        assert shows(view, human) or not fits(human, [], min(limit, budget)) or needs_all(manager, view, human)
        plain = await manager.get_messages_for_request()
        assert shows(plain, human) or not fits(human, [], budget)
        await manager.add_message(messages_of(("answer", size), number, budget)[0])


@given(st.integers(1_200, 3_400), st.integers(1_000, 3_900), st.integers(1_000, 3_900))
@example(2_652, 2_500, 3_600)
async def test_limits_in_turn_one_of_which_has_room_for_it_keep_a_view_each(size: int, first: int, second: int) -> None:
    """Where nothing comes to the history, each limit sees the same bytes each time, after one compaction each."""
    manager = new_manager(max_tokens=4_000)
    human: Message = {"role": "user", "content": text("human", size)}
    assume(fits(human, [], max(first, second)))
    await manager.add_message(human)
    await manager.add_message({"role": "assistant", "content": "I look into it."})
    views: dict[int, list[Message]] = {}
    for limit in (first, second) * 5:
        view = await measured(manager, limit)
        assert view == views.setdefault(limit, view)
    assert (await manager.explain())["compactions"] <= 2
