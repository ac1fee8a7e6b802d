"""The adapter for Microsoft's Agent Framework, in an agent of the library."""

import json
from pathlib import Path
from typing import Any

import pytest

from amplifier_context_core import ContextManager, open_store
from tests.adapters.scenario import ANSWER, NEXT_TASK, TASK, Script, asks, context, has_each_page, judge, page
from tests.messages import result

pytest.importorskip("agent_framework", reason="`make adapters` installs it")

from agent_framework import Agent, BaseChatClient, ChatResponse, Content, FunctionInvocationLayer, Message

from examples.adapters.agent_framework_context import AmplifierCompaction, AmplifierHistory


def as_openai(messages: list[Message]) -> list[dict[str, Any]]:
    return [one_as_openai(str(message.role), content) for message in messages for content in message.contents]


def one_as_openai(role: str, content: Content) -> dict[str, Any]:
    if content.type == "function_call":
        return asks(content.call_id, content.name, json.dumps(content.parse_arguments()))
    if content.type == "function_result":
        return result(content.call_id, content.result)
    return {"role": role, "content": content.text}


class Reader(FunctionInvocationLayer, BaseChatClient):
    def __init__(self) -> None:
        super().__init__()
        self.script = Script()

    async def _inner_get_response(self, *, messages: Any, **options: Any) -> ChatResponse:
        call = self.script.call(messages)
        said = Content.from_function_call(call[0], "read_page", arguments=call[1]) if call else ANSWER
        return ChatResponse(messages=[Message("assistant", [said])])


def read_page(number: int) -> str:
    """Read a page of the report."""
    return page(number)


def history_in(folder: Path) -> AmplifierHistory:
    store = open_store(f"sqlite:{folder / 'talks.db'}")
    return AmplifierHistory(lambda name: ContextManager(session_id=name, store=store))


async def test_an_agent_outgrows_its_budget_and_every_request_is_valid(tmp_path: Path) -> None:
    client, history = Reader(), history_in(tmp_path)
    client.function_invocation_configuration["max_iterations"] = 1_000
    agent = Agent(
        client, tools=[read_page], context_providers=[history], compaction_strategy=AmplifierCompaction(context())
    )
    session = agent.create_session(session_id="talk")
    await agent.run(TASK, session=session)
    await agent.run(NEXT_TASK, session=session)
    judge([as_openai(request) for request in client.script.requests])
    await history.context("talk").close()
    assert has_each_page(as_openai(await history_in(tmp_path).get_messages("talk")))  # in the next process


async def test_a_history_gives_back_the_messages_that_it_was_given_but_for_what_was_erased(tmp_path: Path) -> None:
    history = history_in(tmp_path)
    asked = [Content.from_function_call(name, "look", arguments={}) for name in ("c1", "c2")]
    results = [Content.from_function_result(name, result=name) for name in ("c1", "c2")]
    image = Content.from_data(b"\x89PNG", "image/png")
    given = [Message("user", ["See", image]), Message("assistant", [Content.from_text_reasoning(text="hm"), *asked])]
    await history.save_messages("talk", [*given, Message("tool", [*results, Content.from_text("Both.")])])
    read = await history.get_messages("talk")
    assert [one.to_dict() for one in read[:2]] == [one.to_dict() for one in given]
    given_back = [[content.to_dict() for content in one.contents] for one in read[2:]]
    assert given_back == [[one.to_dict()] for one in (*results, Content.from_text("Both."))]
    await history.context("talk").forget(["m4"])
    erased = (await history.get_messages("talk"))[3]
    assert (erased.contents[0].call_id, erased.contents[0].result) == ("c2", "(erased)")
    await history.context("talk").close()
