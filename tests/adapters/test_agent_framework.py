"""The adapter for Microsoft's Agent Framework, in an agent of the library."""

import json
from pathlib import Path
from typing import Any

import pytest

from amplifier_context_core import ContextManager, open_store
from tests.adapters.scenario import ANSWER, NEXT_TASK, PAGES, TASK, call, context, judge, page

pytest.importorskip("agent_framework", reason="`make adapters` installs it")

from agent_framework import Agent, BaseChatClient, ChatResponse, Content, FunctionInvocationLayer, Message

from examples.adapters.agent_framework_context import AmplifierCompaction, AmplifierHistory


def as_openai(messages: list[Message]) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = []
    for message in messages:
        for content in message.contents:
            if content.type == "function_call":
                function = {"name": content.name, "arguments": json.dumps(content.parse_arguments())}
                asked = {"id": content.call_id, "type": "function", "function": function}
                made.append({"role": "assistant", "content": "", "tool_calls": [asked]})
            elif content.type == "function_result":
                made.append({"role": "tool", "tool_call_id": content.call_id, "content": content.result})
            else:
                made.append({"role": str(message.role), "content": content.text})
    return made


class Reader(FunctionInvocationLayer, BaseChatClient):
    def __init__(self) -> None:
        super().__init__()
        self.requests: list[list[Message]] = []

    async def _inner_get_response(self, *, messages: Any, **options: Any) -> ChatResponse:
        turn, step = divmod(len(self.requests), PAGES + 1)
        self.requests.append(list(messages))
        name, arguments = call(turn + 1, step)
        asked = Content.from_function_call(name, "read_page", arguments=arguments)
        return ChatResponse(messages=[Message("assistant", [asked if step < PAGES else ANSWER])])


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
    judge([as_openai(request) for request in client.requests])
    await history.context("talk").close()
    whole = as_openai(await history_in(tmp_path).get_messages("talk"))  # the next process
    assert [one["content"] for one in whole if one["role"] == "tool"] == [*map(page, range(PAGES))] * 2


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
