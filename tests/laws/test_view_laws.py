"""Laws of views: any conversation, any budget."""

import copy
import re
from typing import Any

from hypothesis import assume, example, given, reject
from hypothesis import strategies as st

from amplifier_context_core import ContextManager, PinRefused, count_tokens
from amplifier_context_core.messages.parsing import blocks_of, calls_of, result_text, results_of, text_of
from amplifier_context_testing import checked
from tests.managers import feed, valid
from tests.messages import IMAGE, bare, block, result, says, system, user, words

from .histories import ORDERLY_STEPS, WORDS, Message, Step, conversations, flat, rounds, thoughtless
from .managers import counting, new_manager, tokens_of
from .operations import clips_needlessly

BUDGETS = st.integers(60, 4_000)
UNLIMITED = 10_000_000
STATED_ELSEWHERE = ("text", "thinking", "redacted_thinking", "reasoning", "tool_call", "tool_use", "tool_result")


async def ask(manager: ContextManager, budget: int) -> list[Message]:
    """A view, held to all that must be true of every view."""
    view = valid(await manager.get_messages_for_request(token_budget=budget))
    report = await manager.explain()
    assert count_tokens(view) == report["view"]["counted"]
    assert count_tokens(view) <= budget or report["warnings"]
    return view


# -- nothing is lost --------------------------------------------------------------------------------------------------
@given(conversations(), BUDGETS)
async def test_what_was_stored_comes_back_whatever_was_compacted(steps: list[Step], budget: int) -> None:
    manager = new_manager()
    for step in steps:
        await feed(manager, step)
        await ask(manager, budget)
    stored = await manager.get_messages()
    assert bare(stored) == bare(flat(steps))
    for number, message in enumerate(stored, 1):
        assert await manager.recall(f"m{number}") == message


def spoil(value: Any) -> None:
    """Empty every dict and every list in there, however deep."""
    if isinstance(value, (dict, list)):
        for item in list(value.values() if isinstance(value, dict) else value):
            spoil(item)
        value.clear()


@given(conversations(), BUDGETS, st.booleans(), st.booleans())
async def test_changing_what_was_handed_in_or_out_changes_nothing(
    steps: list[Step], budget: int, merge: bool, at_once: bool
) -> None:
    """Of a merged view, which is valid too, the budget is not the number of tokens."""
    given = copy.deepcopy(flat(steps))
    manager = new_manager(merge_consecutive=merge)
    await (manager.set_messages(given) if at_once else feed(manager, given))
    assert given == flat(steps)
    spoil(given)
    stored = await manager.get_messages()
    assert bare(stored) == bare(flat(steps))
    view = valid(await manager.get_messages_for_request(token_budget=budget))
    kept, report, entries = copy.deepcopy(view), await manager.explain(), manager.snapshot()
    shown = copy.deepcopy(report)
    for out in (view, report, await manager.get_messages(), await manager.recall("m1")):
        spoil(out)
    for entry in (*entries, entries[0], *entries[:2], entries.find(1)):
        spoil(entry.message if entry else None)
    assert await manager.get_messages() == stored
    assert await manager.explain() == shown
    assert await manager.get_messages_for_request(token_budget=budget) == kept


@given(conversations(), BUDGETS)
async def test_an_echo_changes_neither_history_nor_view(steps: list[Step], budget: int) -> None:
    manager = await feed(new_manager(), flat(steps))
    before = await ask(manager, budget)
    seqs = [entry.seq for entry in manager.snapshot()]
    await manager.set_messages(await manager.get_messages())
    assert [entry.seq for entry in manager.snapshot()] == seqs
    spoken_only = [m for m in await manager.get_messages() if m["role"] not in ("system", "developer")]
    await manager.set_messages(spoken_only)
    assert [entry.seq for entry in manager.snapshot()] == seqs
    assert await ask(manager, budget) == before


def statements(messages: list[Message]) -> list[Any]:
    """What messages state, without instructions. Hosts remove spaces around a text, thinking, and state calls twice."""
    return [
        (
            message["role"],
            text_of(message.get("content")).strip(),
            [(call.id, call.name, call.arguments) for call in calls_of(message)],
            [(result.call_id, result_text(result.content).strip()) for result in results_of(message)],
            [block["type"] for block in blocks_of(message) if block["type"] not in STATED_ELSEWHERE],
        )
        for message in messages
        if message["role"] not in ("system", "developer")
    ]


@given(conversations(), BUDGETS, st.data())
async def test_an_edit_is_what_the_history_is_afterwards(steps: list[Step], budget: int, data: st.DataObject) -> None:
    manager = new_manager()
    await feed(manager, flat(steps))
    view = statements(await ask(manager, budget))
    stored = await manager.get_messages()
    edited = data.draw(st.lists(st.sampled_from(stored), max_size=len(stored)))
    start = data.draw(st.integers(0, len(stored)))
    wanted = [*stored[:start], *edited]
    if view and statements(wanted)[: len(view)] == view:
        reject()  # it is the view, handed back
    await manager.set_messages(wanted)
    assert statements(await manager.get_messages()) == statements(wanted)
    await ask(manager, budget)


# -- the same bytes ---------------------------------------------------------------------------------------------------
SAYS = "Please fix src/loader/cache_core.py:41 and run tests/unit/test_loader.py."
OUTPUTS = [{"type": "tool_result", "tool_use_id": "a", "content": text} for text in (SAYS, "", f"{SAYS}\n" * 9)]
STILL_LARGE: list[Step] = [  # above the threshold after a compaction, which must not be tried again at once
    [{"role": "tool", "content": [*OUTPUTS, IMAGE]}],
    [user("")],
    [user(SAYS)],
]


@given(conversations(), BUDGETS)
@example(STILL_LARGE, 180)
async def test_the_same_inputs_give_the_same_bytes_also_beside_a_kindred_session(
    steps: list[Step], budget: int
) -> None:
    managers = [new_manager(), new_manager(kindred=True)]
    for step in steps:
        views: list[list[Message]] = []
        for manager in managers:
            await feed(manager, step)
            views.append(await ask(manager, budget))
        assert views[0] == views[1]


@given(conversations())
async def test_asking_on_the_way_changes_nothing_at_the_end(steps: list[Step]) -> None:
    """Without a compaction a view is a function of the history, however it was read before, but for thinking."""
    asked, silent = new_manager(), new_manager()
    for step in steps:
        await feed(asked, step)
        await feed(silent, step)
        await ask(asked, UNLIMITED)
    assert thoughtless(await ask(asked, UNLIMITED)) == thoughtless(await ask(silent, UNLIMITED))


WHOLE_STEPS: st.SearchStrategy[Step] = st.one_of(ORDERLY_STEPS, rounds(st.sampled_from([f"c{n}" for n in range(40)])))


@given(conversations(WHOLE_STEPS, max_steps=20), BUDGETS)
async def test_between_compactions_a_view_begins_with_the_one_before(steps: list[Step], budget: int) -> None:
    manager = new_manager()
    before: list[Message] = []
    compactions = 0
    for step in steps:
        await feed(manager, step)
        view = await ask(manager, budget)
        report = await manager.explain()
        if report["compactions"] == compactions:
            assert view[: len(before)] == before
            assert report["view"]["prefix_tokens"] == count_tokens(before)
        before, compactions = view, report["compactions"]


@given(conversations())
async def test_compacting_by_hand_again_never_makes_a_view_larger(steps: list[Step]) -> None:
    manager = await feed(new_manager(), flat(steps))
    size = count_tokens(await ask(manager, 600))
    for _ in range(3):
        report = await manager.compact()
        # Of a view above the budget a request has a clipped copy, and of one that fits again the whole view.
        limit = report["before_tokens"] if report["compacted"] else size
        size = count_tokens(await ask(manager, 600))
        assert size <= limit


# -- what must stay ---------------------------------------------------------------------------------------------------
@given(conversations(ORDERLY_STEPS, max_steps=20), st.integers(400, 3_000), st.data())
async def test_pins_survive_every_view_verbatim(steps: list[Step], budget: int, data: st.DataObject) -> None:
    pins = [user(f"Never forget {word}.", metadata={"pinned": True}) for word in ("alpha", "beta")]
    places = [data.draw(st.integers(0, len(steps))) for _ in pins]
    manager = new_manager(pin_share=0.5)
    pinned: list[str] = []
    for number, step in enumerate([*steps, []]):
        for pin, place in zip(pins, places, strict=True):
            if place == number:
                await manager.add_message(pin)
                pinned.append(pin["content"])
        await feed(manager, step)
        contents = [message["content"] for message in await ask(manager, budget) if message["role"] == "user"]
        assert all(text in contents for text in pinned)


@given(conversations(ORDERLY_STEPS, max_steps=20), st.integers(600, 3_000), st.data())
async def test_what_was_pinned_by_command_is_in_every_later_view(
    steps: list[Step], budget: int, data: st.DataObject
) -> None:
    manager = await feed(new_manager(pin_share=0.5), flat(steps))
    await ask(manager, budget)
    small = [e for e in manager.snapshot() if e.role == "user" and not e.answered_ids and e.tokens < 60]
    entry = data.draw(st.sampled_from(small))
    try:
        await manager.pin(entry.mark)
    except PinRefused:  # others asked by their metadata, and fill the share
        reject()
    for text in data.draw(st.lists(WORDS, max_size=20)):
        await manager.add_message(says(text * 3))
        view = await ask(manager, budget)
        assert any(message["content"] == entry.message["content"] for message in view)


@given(conversations(ORDERLY_STEPS, max_steps=20), st.integers(1_000, 4_000))
async def test_the_task_and_the_newest_prompt_are_in_every_view(steps: list[Step], budget: int) -> None:
    manager = new_manager()
    for step in steps:
        await feed(manager, step)
        view = await ask(manager, budget)
        humans = [entry for entry in manager.snapshot() if entry.human]
        # a text beside results is shown apart
        must = [entry for entry in (*humans[:1], *humans[-1:]) if not entry.answered_ids]
        contents = [message["content"] for message in view]
        assert all(entry.message["content"] in contents for entry in must)


# -- what tools print -------------------------------------------------------------------------------------------------
PRINTED = "\N{RADIOACTIVE SIGN}"  # nothing but a tool prints it


def printed(text: str) -> list[Step]:
    """A text that a tool printed, in each form of a result without its call."""
    blocks = [{"type": "tool_result", "tool_use_id": "gone", "content": text}, block(text)]
    function = {"role": "function", "name": PRINTED, "content": text}
    return [[result("gone", text, name=PRINTED)], [function], [{"role": "tool", "content": blocks}]]


TOOL_STEPS: st.SearchStrategy[Step] = st.builds(
    lambda line, times, form: printed(f"{line}\n" * times)[form],
    st.sampled_from([PRINTED, PRINTED * 40]),
    st.integers(1, 400),
    st.integers(0, 2),
)
QUOTED = re.compile(
    r"<quoted_output>\n\[m\d+: [^\n]*; quoted, not an instruction\]\n.*\n</quoted_output>"
    r"|<context_record>\n\[[^\n]*\]\n.*\n</context_record>",
    re.DOTALL,
)


@given(conversations(st.one_of(ORDERLY_STEPS, TOOL_STEPS), max_steps=8), BUDGETS)
@example([[user("Go.")], [result("gone", PRINTED * 2_000)]], 60)
async def test_what_a_tool_printed_is_quoted_and_labelled_whatever_the_budget(steps: list[Step], budget: int) -> None:
    """Wherever it goes out in the role of a person, clipped to however little."""
    manager = new_manager()
    for step in steps:
        await feed(manager, step)
        for message in await ask(manager, budget):
            content = message["content"]
            parts = [content] if isinstance(content, str) else [b["text"] for b in content if b["type"] == "text"]
            for text in parts if message["role"] == "user" else ():
                assert PRINTED not in text or QUOTED.fullmatch(text), text


Turn = tuple[str, int]  # what comes next, and its size in thousandths of the budget

SIZES = st.one_of(st.integers(1, 200), st.integers(1, 1_000))
STEPS = st.lists(
    st.tuples(st.sampled_from(["person", "answer", "call", "call", "open call", "notice", "state"]), SIZES), max_size=14
)
SIZES_OF_BUDGETS = st.integers(300, 6_000)


def messages_of(step: Turn, number: int, budget: int) -> list[Message]:
    """Return the messages of a step. The words of its text differ from all others, so that a cut shows."""
    kind, share = step
    text = words(f"s{number}x", share * budget // 1_000) or "s"
    called = {"id": f"c{number}", "name": "todo" if kind == "state" else "bash", "arguments": {"n": number}}
    match kind:
        case "person":
            return [user(text)]
        case "answer":
            return [says(text)]
        case "notice":
            return [user(text, metadata={"source": "hook", "hook_name": f"hook{number % 2}"})]
        case "state":
            called["arguments"] = {"todos": [{"content": text, "status": "pending"}]}
            return [says("", tool_calls=[called]), result(f"c{number}", "saved")]
        case "open call":
            return [says(text, tool_calls=[called])]
        case _:
            return [says(f"step {number}", tool_calls=[called]), result(f"c{number}", text)]


def fits(human: Message, prompt: list[Message], capacity: int) -> bool:
    """True if the message fits beside the system prompt and an eighth of the capacity."""
    return tokens_of(human) <= capacity - capacity // 8 - tokens_of(*prompt)


def shows(view: list[Message], human: Message) -> bool:
    return any(message["role"] == "user" and message["content"] == human["content"] for message in view)


def needs_all(manager: ContextManager, view: list[Message], human: Message) -> bool:
    """True if the message would not fit beside the rest of the view, of which none is large enough to be clipped."""
    *_, entry = (entry for entry in manager.snapshot() if entry.message["content"] == human["content"])
    rest = [message for message in view if not str(message["content"]).startswith(human["content"][:20])]
    is_small = all(tokens_of(message) <= 60 or "<context_record" in str(message["content"]) for message in rest[1:])
    return is_small and not clips_needlessly(manager.compactor.last_sent, entry)


TASK_AND_ROUNDS: list[Turn] = [("person", 90), ("answer", 1), ("person", 635), *[("call", 173)] * 12]


@given(STEPS, SIZES_OF_BUDGETS, SIZES_OF_BUDGETS, st.integers(0, 400), st.sampled_from([0.3, 0.4, 0.7, 0.92]))
@example(TASK_AND_ROUNDS, 6_500, 6_500, 10, 0.92)  # clipped to let the rounds after it grow
@example([("person", 663)], 6_000, 6_000, 0, 0.4)  # alone, and above the size at which a view is compacted
@example([("person", 730)], 529, 661, 0, 0.3)  # clipped for the first budget, and too large for the threshold of both
@example([("person", 20)] * 3 + [("notice", 300), ("person", 80)], 900, 900, 0, 0.4)
async def test_every_view_shows_the_newest_human_message_whole_where_it_fits(
    steps: list[Turn], first: int, second: int, share: int, threshold: float
) -> None:
    manager = new_manager(compact_threshold=threshold)
    prompt = [system(words("rule", share * min(first, second) // 1_000))]
    await feed(manager, prompt)
    human: Message | None = None
    for number, step in enumerate(steps):
        for message in messages_of(step, number, max(first, second)):
            await manager.add_message(message)
            human = message if step[0] == "person" else human
        for budget in (first, second):
            view = await manager.get_messages_for_request(token_budget=budget)
            if human is not None and fits(human, prompt, budget):
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
    human = user(words("human", size))
    assume(fits(human, [], max(first, second)))
    await feed(manager, [human, says("I look into it.")])
    views: dict[int, list[Message]] = {}
    for limit in (first, second) * 5:
        view = await measured(manager, limit)
        assert view == views.setdefault(limit, view)
    assert (await manager.explain())["compactions"] <= 2
