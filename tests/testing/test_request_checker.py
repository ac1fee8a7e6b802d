"""The judge of requests: what it lets pass, and what it does not; messages and made sessions as it reads them."""

import subprocess
import sys
from typing import Any

import pytest

from amplifier_context_testing import check_request, coding_session
from amplifier_context_testing.checks.conversation_builder import ConversationBuilder, image_block
from amplifier_context_testing.checks.message_shapes import calls_of, is_human, results_of
from tests.messages import block, result, says, system, user

Messages = list[dict[str, Any]]


def openai_call(id: Any = "c1", name: Any = "read", arguments: Any = "{}", **more: Any) -> dict[str, Any]:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}, **more}


def calling(*calls: dict[str, Any], content: Any = "") -> dict[str, Any]:
    return {"role": "assistant", "content": content, "tool_calls": list(calls)}


def thinking(signature: str | None = "c2ln") -> dict[str, Any]:
    return {"type": "thinking", "thinking": "hm", "signature": signature}


def uses(id: str) -> dict[str, Any]:
    return {"type": "tool_call", "id": id, "name": "read", "input": {}}


def answers(id: str, output: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_call_id": id, "output": output}


HI, CALL, OK = user("Hi."), calling(openai_call()), result("c1", "ok")
TEXT = block("so")
TWO = calling(openai_call("a"), openai_call("b"))
KERNEL_CALL = {"id": "k", "tool": "read", "arguments": {}}
FOREIGN = "functions.bash:0"


def instructed(disposition: str) -> dict[str, Any]:
    return {"role": "developer", "content": "x", "metadata": {"amplifier:instruction": {"disposition": disposition}}}


VALID: dict[str, Messages] = {
    "an empty result": [system("Be good."), HI, CALL, result("c1", "")],
    "words beside calls": [HI, calling(openai_call(), content="I look."), OK],
    "parallel calls answered in another order": [HI, TWO, result("b"), result("a"), says("Done.")],
    "a kernel call spelled twice": [HI, says([uses("k")], tool_calls=[KERNEL_CALL]), result("k")],
    "results as blocks, text after them": [HI, says([uses("k")]), user([answers("k", "1"), TEXT])],
    "results as blocks in two messages": [HI, TWO, user([answers("a", "1")]), user([answers("b", "2")])],
    "signed thinking first": [HI, says([thinking(), TEXT])],
    "thinking closed by listed calls": [HI, calling(openai_call(), content=[thinking()]), OK],
    "thinking between calls": [HI, says([thinking(), uses("a"), thinking(), uses("b")]), result("a"), result("b")],
    "an image from the user": [user([image_block()])],
    "an image from a tool": [HI, CALL, result("c1", [image_block()])],
    "users in a row": [HI, user("Hello?")],
    "assistants in a row": [HI, says("One."), says("Two.")],
    "a system message in the middle": [HI, says("Hi."), system("x")],
    "ids and names at their longest": [
        HI,
        {**calling(openai_call("x" * 40, "_" + "n" * 63)), "name": "1" * 64},
        {**result("x" * 40), "name": "read-file_2"},
    ],
    "an active instruction": [instructed("active"), HI],
}
BROKEN: dict[str, tuple[Any, ...]] = {  # a sentence of what is said of it, and the messages
    "nothing": ("the request is empty",),
    "system messages only": ("system messages only", system("x")),
    "an assistant first": ("message 0 (assistant) comes first", says("Hi.")),
    "a tool first": ("message 1 (tool) comes first", system("x"), OK),
    "an unknown role": ("message 1 (robot) has the role 'robot', which", HI, {"role": "robot", "content": "x"}),
    "no role": ("has the role None", HI, {"content": "x"}),
    "what the kernel refuses": ("refused by the kernel", HI, user([{"type": "file", "id": "f"}])),
    "NaN": ("is not JSON", HI, user("x", metadata={"n": float("nan")})),
    "an object": ("is not JSON", HI, user("x", metadata={"n": object()})),
    "a lone surrogate": ("lone surrogate (U+D83D)", HI, user("x\ud83d")),
    "null content": ("message 1 (assistant) has no content", HI, calling(openai_call(), content=None), OK),
    "empty content": ("has empty content", HI, says("")),
    "white space only": ("white space only", HI, user(" \n")),
    "an empty list": ("an empty list as content", HI, calling(openai_call(), content=[]), OK),
    "a number as content": ("content of type int", HI, user(1)),
    "an empty text block": ("empty text block (block 0)", HI, user([block(" ")])),
    "an empty text block deep in a result": ("(block 0.0)", HI, CALL, user([answers("c1", [block("")])])),
    "an image from the assistant": ("only users and tools may", HI, says([image_block()])),
    "an image without a source": ("without a source", user([{"type": "image", "source": {}}])),
    "thinking of the user": ("only the assistant thinks", user([thinking(), TEXT])),
    "signed thinking after text": ("not start with", HI, says([TEXT, thinking(), TEXT])),
    "redacted thinking after text": ("not start with", HI, says([TEXT, {"type": "redacted_thinking", "data": "x"}])),
    "thinking last": ("ends with thinking", HI, says([thinking(None)])),
    "a user's call": ("only the assistant may", HI, {**calling(openai_call(), content="x"), "role": "user"}),
    "a call of another type": ("must be 'function'", HI, calling(openai_call(type="tool")), OK),
    "a call without an id": ("without an id", HI, calling(openai_call(id="")), result("")),
    "a call without a name": ("without a name", HI, calling(openai_call(name="")), OK),
    "arguments that are a dict": ("not JSON text", HI, calling(openai_call(arguments={})), OK),
    "arguments that are no JSON": ("not a JSON object", HI, calling(openai_call(arguments="{")), OK),
    "arguments that are a list": ("not a JSON object", HI, calling(openai_call(arguments="[]")), OK),
    "kernel arguments that are text": ("not an object", HI, calling({**KERNEL_CALL, "arguments": "{}"}), result("k")),
    "an id used twice in a message": ("two calls of the id 'c1'", HI, calling(openai_call(), openai_call()), OK),
    "an id used again": ("message 3 (assistant) uses the call id 'c1' of message 1 again", HI, CALL, OK, CALL, OK),
    "an id of another provider's": (
        f"call id '{FOREIGN}', which not",
        HI,
        calling(openai_call(FOREIGN)),
        result(FOREIGN),
    ),
    "an id that ends its line": ("not every provider takes", HI, calling(openai_call("x\n")), result("x\n")),
    "a tool name with a dot": ("by the name 'web.search'", HI, calling(openai_call(name="web.search")), OK),
    "a tool name that begins with a digit": ("by the name '1st'", HI, calling(openai_call(name="1st")), OK),
    "a result's name with a dot": ("has the name", HI, CALL, {**OK, "name": "web.search"}),
    "a speaker with a space": ("has the name 'Dr. No'", HI, user("x", name="Dr. No")),
    "a speaker without a name": ("has the name ''", HI, user("x", name="")),
    "a result without an id": ("without the id of its call", HI, CALL, OK, {**OK, "tool_call_id": None}),
    "a result block on the assistant": ("only users and tools may", HI, says([answers("a", "x")])),
    "a result block after text": ("results come first", HI, CALL, user([TEXT, answers("c1", "x")])),
    "a message between": ("the call 'c1', not answered directly", HI, CALL, system("note"), OK),
    "a late result": ("'c1', a call of message 1 that is not open any more", HI, CALL, user("?"), OK),
    "an orphan result": ("message 1 (tool) answers 'x', a call that was never made", HI, result("x")),
    "a second result": ("a second time", HI, CALL, OK, OK),
    "a retired instruction": ("instruction record that was retired", instructed("retired"), HI),
    "a reference-only row": ("reference only", HI, user("x", metadata={"amplifier_public_reference_only": True})),
}


@pytest.mark.parametrize("name", VALID)
def test_what_providers_take_passes(name: str) -> None:
    assert check_request(VALID[name]) == []


@pytest.mark.parametrize("name", BROKEN)
def test_what_providers_refuse_is_named(name: str) -> None:
    sentence, *messages = BROKEN[name]
    assert sentence in "\n".join(check_request(messages))


# -- messages in all their spellings -----------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", ["openai", "kernel", "anthropic"])
def test_calls_and_results_are_the_same_in_every_spelling(shape: Any) -> None:
    talk = ConversationBuilder(shape)
    one, two = talk.call(("read", {"path": "a"}), ("read", {"path": "b"}))
    talk.result(one, "1")
    assert [(call.id, call.name, call.input()) for call in calls_of(talk.messages[0])] == [
        (one, "read", {"path": "a"}),
        (two, "read", {"path": "b"}),
    ]
    assert [(result.id, result.content) for result in results_of(talk.messages[1])] == [(one, "1")]


@pytest.mark.parametrize(
    ("message", "human"),
    [
        (user([image_block()]), True),
        (says("Hi."), False),
        (user("Hi.", metadata={"ephemeral": True}), False),
        (user("Hi.", metadata={"source": "context-compaction"}), False),
        (user("Hi.", metadata={"source": "cli"}), True),
        (user("<system-reminder>x</system-reminder>"), False),
        (user("<system-reminder>x</system-reminder> Go."), True),
        (user([answers("a", "x")]), False),
        (user(""), False),
    ],
)
def test_a_human_message_is_distinguished_from_an_injected_one(message: dict[str, Any], human: bool) -> None:
    assert is_human(message) is human


@pytest.mark.parametrize("messages", [1, 10, 57, 1000])
@pytest.mark.parametrize("shape", ["openai", "kernel"])
def test_a_coding_session_is_exactly_as_long_as_asked_for_valid_and_the_same_for_its_seed(
    messages: int, shape: Any
) -> None:
    made = list(coding_session(messages, seed=1, shape=shape))
    assert made == list(coding_session(messages, seed=1, shape=shape)) != list(coding_session(messages, 6, shape=shape))
    assert len(made) == messages
    assert check_request([{**one, "content": one["content"] or ""} for one in made]) == []


def test_the_judge_and_the_package_import_no_kernel_and_no_core() -> None:
    program = (
        "import sys, amplifier_context_testing, amplifier_context_testing.checks.request_checker\n"
        "heavy = ('amplifier_core', 'amplifier_context_core', 'pydantic')\n"
        "print(sorted(name for name in sys.modules if name.startswith(heavy)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
