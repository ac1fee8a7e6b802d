"""Conversations with everything that goes wrong in real logs, made by hand and always the same.

Each is what a host hands to a context manager, not what a provider may be sent: turning the one into the other is the
context manager's work. The oddities were all met in recordings of real agents or in hosts' code; no recorded text is in
here. Every call of `conversations` builds new messages, so a test may change them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .conversation_builder import ConversationBuilder, image_block, image_url
from .message_shapes import Message

HUGE = 500_000  # characters of the one huge output


@dataclass(frozen=True, slots=True)
class Conversation:
    """One conversation of the corpus.

    Attributes:
        messages: the history, in order; freshly built.
        oddities: what is odd about it, in words; empty for the ordinary one.
    """

    name: str
    messages: list[Message]
    oddities: tuple[str, ...]


def conversations() -> list[Conversation]:
    """All of the corpus, in a fixed order."""
    return [Conversation(build.__name__, build().messages, oddities) for build, oddities in _BUILDERS]


_Builder = Callable[[], ConversationBuilder]
_BUILDERS: list[tuple[_Builder, tuple[str, ...]]] = []


def _odd(*oddities: str) -> Callable[[_Builder], _Builder]:
    def register(build: _Builder) -> _Builder:
        _BUILDERS.append((build, oddities))
        return build

    return register


@_odd()
def ordinary() -> ConversationBuilder:
    talk = ConversationBuilder().system("You help with code.").user("Add a cache to the loader.")
    talk.work(6, "loader").say("The loader is cached now.")
    talk.user("And the tests?").work(4, "tests").say("All pass.")
    return talk


@_odd("parallel calls", "results in another order")
def parallel_calls() -> ConversationBuilder:
    talk = ConversationBuilder().user("Read all three files.")
    one, two, three = talk.call(("read", {"path": "a.py"}), ("read", {"path": "b.py"}), ("read", {"path": "c.py"}))
    talk.result(three, "C = 3").result(one, "A = 1").result(two, "B = 2").say("A, B and C are 1, 2 and 3.")
    return talk.user("Sum them.").work(5, "sums").say("6.")


@_odd("reused call ids")
def reused_call_ids() -> ConversationBuilder:
    talk = ConversationBuilder().system("You book flights.")
    for turn in range(5):
        talk.user(f"Is flight {turn} booked?")
        talk.call(("look_up", {"flight": turn}), ids=["call_1"])
        talk.result("call_1", f"flight {turn}: {'booked' if turn % 2 else 'open'}").say(f"Flight {turn} is looked up.")
    return talk


@_odd("orphan first result", "starts with a tool")
def starts_with_a_tool() -> ConversationBuilder:
    talk = ConversationBuilder().result("call_lost", "the end of something").say("That was the last file.")
    return talk.user("Go on.").work(4, "rest").say("Done.")


@_odd("late results")
def late_results() -> ConversationBuilder:
    talk = ConversationBuilder().user("Run the build and tell me the time.")
    build, clock = talk.call(("build", {"target": "all"}), ("clock", {}))
    talk.result(clock, "12:00").user("Are you there?").say("The build still runs.")
    talk.result(build, "build finished: 0 errors")
    (check,) = talk.call(("check", {"what": "artifacts"}))
    talk.call(("clock", {}))
    talk.result(check, "4 artifacts").say("All built.")
    return talk.user("Good.").work(3, "artifacts").say("Four artifacts.")


@_odd("missing results", "interrupted calls", "ends with open calls")
def missing_results() -> ConversationBuilder:
    talk = ConversationBuilder().user("Delete the old branches.")
    first, _ = talk.call(("list_branches", {}), ("list_tags", {}), text="First I look.")
    talk.result(first, "main, old-1, old-2").user("Stop! Only list them.").say("old-1 and old-2.")
    talk.call(("delete", {"branch": "old-1"}))
    talk.user("I said stop.").say("Nothing was deleted.").work(3, "branches")
    talk.user("Now delete old-2.").call(("delete", {"branch": "old-2"}))
    return talk


@_odd("duplicate results")
def duplicate_results() -> ConversationBuilder:
    talk = ConversationBuilder().user("What is the weather?")
    (made,) = talk.call(("weather", {"city": "Paris"}))
    talk.result(made, "18 degrees").result(made, "18 degrees").say("18 degrees.").result(made, "19 degrees")
    return talk.user("And tomorrow?").work(3, "weather").say("The same.")


@_odd("duplicate ids in one message")
def duplicate_ids_in_one_message() -> ConversationBuilder:
    talk = ConversationBuilder().user("Read both.")
    talk.call(("read", {"path": "x.txt"}), ("read", {"path": "y.txt"}), ids=["call_x", "call_x"])
    talk.result("call_x", "the x file").result("call_x", "the y file").say("Both read.")
    return talk.user("Again.").work(3, "reads").say("Done.")


@_odd("calls on a user message")
def calls_on_a_user_message() -> ConversationBuilder:
    """Simulated users have tools of their own in some benchmarks."""
    talk = ConversationBuilder().user("Help me with my phone.").say("Please turn on airplane mode.")
    talk.call(("toggle_airplane_mode", {"on": True}), ids=["user_1"])
    talk.messages[-1]["role"] = "user"
    talk.result("user_1", "airplane mode is on").user("It is on now.").say("Now turn it off again.")
    return talk.work(3, "phone").user("Thanks.").say("You are welcome.")


@_odd("null contents", "absent content")
def null_contents() -> ConversationBuilder:
    talk = ConversationBuilder().user("Find the bug.").work(3, "bugs")
    (made,) = talk.call(("read", {"path": "empty.txt"}))
    talk.result(made, None)
    talk.say(None).user(None).user("Well?")
    talk.messages.append({"role": "assistant"})
    return talk.say("There is no bug.").user("Thanks.").work(2, "closing").say("Done.")


@_odd("empty assistant messages", "white space only", "empty text blocks", "empty lists")
def empty_assistants() -> ConversationBuilder:
    talk = ConversationBuilder().user("Say something.").say("").user("Please.").say("  \n").user("Anything!")
    talk.say([]).user("Hello?").say([{"type": "text", "text": ""}]).user("Last chance.")
    (made,) = talk.call(("think", {}), text="\n\n")
    talk.result(made, "").say([{"type": "text", "text": " "}, {"type": "text", "text": "Something."}])
    return talk.user([{"type": "text", "text": ""}]).work(3, "words").say("More.")


@_odd("consecutive assistants", "starts with an assistant")
def assistants_in_a_row() -> ConversationBuilder:
    """Several agents talk to each other; the log knows them by name only."""
    talk = ConversationBuilder()
    for number in range(8):
        talk.say(
            f"Expert {number % 3} finds that step {number} follows from step {number - 1}.", name=f"expert_{number % 3}"
        )
    talk.user("Who is right?", name="terminal").say("Expert 2.", name="expert_2").say("Agreed.", name="expert_0")
    return talk


@_odd("consecutive users")
def users_in_a_row() -> ConversationBuilder:
    talk = ConversationBuilder().user("First thought.").user("Second thought.").user("Third: do all of it.")
    talk.work(3, "thoughts").user("Faster.").user("Please.").say("Done.").user("One more.").user("Or two.")
    return talk.work(2, "more").say("Both done.")


@_odd("images", "image in a tool result")
def images_as_openai_sends_them() -> ConversationBuilder:
    talk = (
        ConversationBuilder()
        .user([{"type": "text", "text": "What is this?"}, image_url(640, 480)])
        .say("A grey square.")
    )
    (made,) = talk.call(("screenshot", {"screen": 1}))
    talk.result(made, [{"type": "text", "text": "screen 1"}, image_url(1024, 768)]).say("Grey as well.")
    return talk.user([image_url()]).say("One pixel.").work(3, "pixels").say("Done.")


@_odd("images", "image in a tool result")
def images_as_the_kernel_has_them() -> ConversationBuilder:
    talk = ConversationBuilder("anthropic").user(
        [{"type": "text", "text": "Compare these."}, image_block(640, 480), image_block()]
    )
    (made,) = talk.call(("screenshot", {"screen": 2}), text="One more.")
    talk.result(made, [{"type": "text", "text": "screen 2"}, image_block(320, 200)]).say("All grey.")
    return talk.user([image_block(64, 64)]).say("Grey again.").work(3, "colours")


@_odd("signed thinking", "redacted thinking")
def signed_thinking() -> ConversationBuilder:
    talk = ConversationBuilder("kernel").user("Prove it.")
    for number in range(5):
        thoughts: list[dict[str, Any]] = [
            {"type": "thinking", "thinking": f"Lemma {number} needs care.", "signature": f"c2lnbmF0dXJl{number:04d}"}
        ]
        if number == 2:
            thoughts.append({"type": "redacted_thinking", "data": "cmVkYWN0ZWQ="})
        (made,) = talk.call(("prove", {"lemma": number}), text=f"Lemma {number} first.")
        talk.messages[-1]["content"] = [*thoughts, *talk.messages[-1]["content"]]
        talk.result(made, f"lemma {number}: proved in {number + 3} steps")
    talk.say(
        [{"type": "thinking", "thinking": "All hold.", "signature": "c2lnbmVk"}, {"type": "text", "text": "Proved."}]
    )
    return talk.user("Thanks. Next theorem.").say([{"type": "redacted_thinking", "data": "bW9yZQ=="}]).user("Well?")


@_odd("thinking of another provider", "unsigned thinking")
def thinking_of_two_providers() -> ConversationBuilder:
    talk = ConversationBuilder("kernel").user("Plan the trip.")
    sealed = {"type": "thinking", "thinking": "A route.", "signature": None, "content": ["Z0FBQUFB", "rs_0001"]}
    (made,) = talk.call(("route", {"to": "Rome"}), text="Looking.", metadata={"openai:response_id": "resp_0001"})
    talk.messages[-1]["content"].insert(0, sealed)
    talk.messages[-1]["thinking_block"] = dict(sealed)
    talk.result(made, "1,400 km", name="route")
    reasoning = {"type": "reasoning", "content": [{"type": "text", "text": "long"}], "summary": []}
    talk.say([reasoning, {"type": "text", "text": "Two days."}], metadata={"openai:reasoning_items": ["rs_0002"]})
    talk.user("By train?")
    signed = {"type": "thinking", "thinking": "Trains run.", "signature": "c2lnbmVk"}
    return talk.say([signed, {"type": "text", "text": "Yes."}]).user("Book it.").work(3, "trains").say("Booked.")


@_odd("tool_use and tool_result blocks", "results in one message", "results in several", "text after results")
def anthropic_blocks() -> ConversationBuilder:
    talk = ConversationBuilder("anthropic").user([{"type": "text", "text": "Fix the tests."}]).work(3, "fixes")
    one, two = talk.call(("read", {"path": "t1.py"}), ("read", {"path": "t2.py"}), text="Both.")
    both = [{"type": "tool_result", "tool_use_id": id, "content": f"assert {id!r}"} for id in (one, two)]
    talk.user([*both, {"type": "text", "text": "Look at the second first."}])
    three, four = talk.call(("run", {"test": "t1"}), ("run", {"test": "t2"}))
    talk.result(three, [{"type": "text", "text": "failed"}], is_error=True).result(four, "passed")
    return talk.say("t1 fails.").user("Then fix t1.").work(2, "t1").say([{"type": "text", "text": "Fixed."}])


@_odd("unknown block types")
def unknown_blocks() -> ConversationBuilder:
    talk = ConversationBuilder().user(
        [{"type": "text", "text": "See the file."}, {"type": "file", "path": "notes.md", "content": "# Notes\n- one"}]
    )
    talk.say([{"type": "text", "text": "Seen."}, {"type": "citation", "of": {"path": "notes.md", "lines": [1, 2]}}])
    talk.user([{"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}}]).say("A short sound.")
    return talk.user([{"type": "file", "file": {"file_id": "file-1"}}]).work(3, "notes").say("Two notes.")


@_odd("CJK", "emoji", "right-to-left text")
def many_scripts() -> ConversationBuilder:
    talk = (
        ConversationBuilder()
        .user("請把這個檔案翻譯成英文。")
        .round("read", {"path": "資料/說明.txt"}, "你好,世界。\n" * 40)
    )
    talk.say("Hello, world.").user("もう一度、丁寧にお願いします。").say("Good day to the world. 👋🏽👩‍👩‍👧‍👦🇪🇺")
    talk.user("مرحبا بالعالم").say("שלום עולם").user("Z̸a̷l̴g̵o̶ é = é?").work(2, "greetings")
    return talk.say("한국어도 됩니다. " * 30).user("🎉" * 50).say("🎉")


@_odd("lone surrogates")
def lone_surrogates() -> ConversationBuilder:
    """Text cut in the middle of a character by a program that counts UTF-16 units."""
    talk = (
        ConversationBuilder()
        .user("Show the log \ud83d")
        .round("read", {"path": "log"}, "line one \ude00\nline two", text="Reading \udfff.")
    )
    return talk.say("Two lines.").user("More.").work(3, "logs").say("Done.")


@_odd("500 kB output")
def huge_output() -> ConversationBuilder:
    talk = ConversationBuilder().user("Print the whole table.").work(2, "tables")
    rows = "\n".join(
        f"{number:06d} | order_{number * 7919 % 100_003:06d} | {'paid' if number % 3 else 'open'}"
        for number in range(15_000)
    )
    talk.round("query", {"sql": "select * from orders"}, rows[:HUGE].ljust(HUGE, "."))
    return talk.say("15,000 rows.").user("Which are open?").work(3, "orders").say("A third of them.")


@_odd("hook message between call and result", "repeated hook messages")
def hook_between_call_and_result() -> ConversationBuilder:
    """loop-streaming stores what a hook injects on `tool:post` before it stores the results."""
    talk = ConversationBuilder("kernel").system("You are careful.").user("Edit two files.")
    for number in range(4):
        one, two = talk.call(("edit", {"path": f"m{number}.py"}), ("lint", {"path": f"m{number}.py"}))
        for which in ("lint", "todo") if number else ("lint",):
            talk.system(
                f"{which}: {number + 1} notes so far",
                metadata={"source": "hook", "hook_name": which, "event": "tool:post", "persisted": True},
            )
        talk.result(one, "edited", name="edit").result(two, "clean", name="lint")
    return talk.say("Both edited.").user("Good.").say("Anything else?")


@_odd("ephemeral user messages", "injected user messages")
def injected_user_messages() -> ConversationBuilder:
    talk = ConversationBuilder().user("Write the report.").work(2, "report")
    talk.user("<system-reminder>Three todos are open.</system-reminder>")
    talk.user("You have used half of your budget.", metadata={"source": "hook", "ephemeral": True})
    talk.say("Noted.").user("Older parts were compacted.", metadata={"source": "context-compaction", "ephemeral": True})
    talk.user("Make it short.").work(2, "summary")
    talk.user("Reminder: be brief.", metadata={"ephemeral": True, "persisted": True}).say("Short it is.")
    return talk.user("<system-reminder>x</system-reminder> And add a title.").say("Added.")


@_odd("reminders that are history", "an envelope of reminders", "an input of a service")
def persisted_reminders() -> ConversationBuilder:
    talk = ConversationBuilder("kernel")
    marks = {"ephemeral": True, "persisted": True}

    def remind(todo: str, status: str) -> None:
        inner = "".join(
            f'<system-reminder source="{source}">\n{text}\n</system-reminder>\n'
            for source, text in (("hooks-todo", todo), ("hooks-status", status))
        )
        talk.user(f"<system-reminders>\nFrom hooks.\n{inner}</system-reminders>", metadata=dict(marks))

    remind("1. read", "Monday")
    talk.user("Fix the loader.")
    for number in range(4):
        talk.work(1, f"part {number}")
        remind(f"{number + 2}. go on", "Monday")
    talk.user("Job 7 has ended.", metadata={"amplifier_input": {"version": 1, "kind": "service", "id": "job-7"}})
    return talk.say("Fixed.").user("Then ship it.").work(2, "shipping").say("Shipped.")


@_odd("retired instruction rows", "pruned anchors")
def retired_instructions() -> ConversationBuilder:
    talk = ConversationBuilder().system("You follow instructions.")

    def instruct(text: str, disposition: str) -> None:
        record = {"id": f"i{len(talk.messages)}", "disposition": disposition}
        talk.add("developer", text, metadata={"amplifier:instruction": record})

    instruct("Answer in French.", "retired")
    talk.user("Bonjour.").say("Bonjour!")
    instruct("Answer in English.", "active")
    talk.user("Hello.").work(3, "languages")
    instruct("(anchor)", "anchor_pruned")
    return talk.say("Hello!").user("Which language?").say("English.")


@_odd("reference-only rows")
def reference_only() -> ConversationBuilder:
    talk = ConversationBuilder().user("Summarise the paper.")
    talk.user("[paper attached for reference]", metadata={"amplifier_public_reference_only": True})
    talk.work(3, "paper").say("[draft kept for reference]", metadata={"amplifier_public_reference_only": True})
    return talk.say("It is about caches.").user("Thanks.").say("Gladly.")


@_odd("loaded-tool state", "response ids")
def loaded_tools() -> ConversationBuilder:
    talk = ConversationBuilder("kernel").user("Send a mail.")
    state = {"openai:tool_search_items": [{"type": "tool_search_output", "tools": [{"name": "send_mail"}]}]}
    (made,) = talk.call(("tool_search", {"query": "mail"}), metadata={**state, "openai:response_id": "resp_1"})
    talk.result(made, "send_mail loaded")
    for number in range(2, 7):
        (made,) = talk.call(
            ("send_mail", {"to": f"user{number}@example.com"}), metadata={"openai:response_id": f"resp_{number}"}
        )
        talk.result(made, f"mail {number} sent")
    talk.say([{"type": "text", "text": "All sent."}], metadata={"openai:response_id": "resp_7"})
    return talk.user("And the reminder?").work(3, "mail").say("Sent too.", metadata={"openai:response_id": "resp_8"})


@_odd("malformed argument JSON", "arguments that are no object", "call without a name")
def malformed_arguments() -> ConversationBuilder:
    talk = ConversationBuilder().user("Call it anyway.")
    for place, arguments in enumerate(['{"path": "a.txt", ', "[1, 2]", "", "null"]):
        talk.call(("read", {}), ids=[f"bad_{place}"])
        talk.messages[-1]["tool_calls"][0]["function"]["arguments"] = arguments
        talk.result(f"bad_{place}", "error: arguments are no JSON object")
    talk.call(("", {}), ids=["bad_name"])
    talk.result("bad_name", "error: no such tool").say("I could not.")
    return talk.user("Then properly.").work(3, "proper").say("Done.")


@_odd("kernel-shaped calls beside tool_call blocks", "timestamps")
def kernel_loop() -> ConversationBuilder:
    """What Amplifier's own loops store."""
    talk = ConversationBuilder("kernel").system("You are an agent.").user("Explore.")
    talk.work(6, "kernel").say([{"type": "text", "text": "Explored.", "visibility": None}])
    talk.user("Once more.").work(3, "again").say([{"type": "text", "text": "Nothing new.", "visibility": None}])
    for number, message in enumerate(talk.messages):
        message.setdefault("metadata", {})["timestamp"] = (
            f"2025-01-01T00:{number // 60:02d}:{number % 60:02d}.000+00:00"
        )
    return talk


@_odd("several leading system messages", "developer message")
def several_system_messages() -> ConversationBuilder:
    talk = (
        ConversationBuilder().system("You are an agent.").system("Rules: never delete.").add("developer", "Be terse.")
    )
    talk.user("Start.").work(4, "start").say("Started.")
    return talk.system("The rules still hold.").user("Go on.").work(2, "going").say("Gone on.")


@_odd("starts with an assistant")
def starts_with_an_assistant() -> ConversationBuilder:
    talk = (
        ConversationBuilder().say("Welcome! How can I help?").user("Sort the list.").work(4, "sorting").say("Sorted.")
    )
    return talk.user("Reverse it.").say("Reversed.")


@_odd("nothing at all")
def nothing() -> ConversationBuilder:
    return ConversationBuilder()


@_odd("system prompt only")
def only_a_system_prompt() -> ConversationBuilder:
    return ConversationBuilder().system("You wait.")


@_odd("deprecated function results")
def function_results() -> ConversationBuilder:
    """Logs from before tools had ids."""
    talk = ConversationBuilder().user("Look it up.")
    talk.say(None, function_call={"name": "look_up", "arguments": '{"word": "cache"}'})
    return (
        talk.add("function", "a hidden store", name="look_up").say("A hidden store.").user("Thanks.").work(2, "words")
    )


@_odd("cancelled turn", "closing message", "repeated prompt")
def cancelled_turn() -> ConversationBuilder:
    talk = ConversationBuilder("kernel").user("Run everything.").work(2, "everything")
    one, _ = talk.call(("run", {"suite": "fast"}), ("run", {"suite": "slow"}))
    talk.result(one, "fast: passed").say("The turn was cancelled.").user("Run everything.")
    talk.call(("run", {"suite": "slow"}))
    return talk.say("The turn was cancelled.").user("Only the fast suite.").work(2, "fast").say("Passed.")
