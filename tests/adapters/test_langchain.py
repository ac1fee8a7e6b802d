"""The adapter for LangChain, in an agent of the library."""

from __future__ import annotations

from typing import Any

import pytest

from tests.adapters.scenario import ANSWER, NEXT_TASK, PAGES, TASK, call, context, judge, page

pytest.importorskip("langchain", reason="`make adapters` installs it")

from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage, convert_to_openai_messages
from langchain_core.outputs import ChatGeneration, ChatResult
from langgraph.checkpoint.memory import InMemorySaver
from pydantic import PrivateAttr

from examples.adapters.langchain_context import AmplifierContext

HERE: Any = {"configurable": {"thread_id": "here"}, "recursion_limit": 1_000}


class Reader(BaseChatModel):
    """A scripted model that reads a page with each request."""

    _requests: list[list[BaseMessage]] = PrivateAttr(default_factory=list)

    @property
    def requests(self) -> list[list[BaseMessage]]:
        return self._requests

    @property
    def _llm_type(self) -> str:
        return "reader"

    def bind_tools(self, tools: Any, **options: Any) -> Reader:
        return self

    def _generate(self, messages: list[BaseMessage], *_: Any, **options: Any) -> ChatResult:
        turn, step = divmod(len(self._requests), PAGES + 1)
        self._requests.append(list(messages))
        name, arguments = call(turn + 1, step)
        calls = [{"id": name, "name": "read_page", "args": arguments}] if step < PAGES else []
        answer = AIMessage("" if calls else ANSWER, tool_calls=calls)
        return ChatResult(generations=[ChatGeneration(message=answer)])


def read_page(number: int) -> str:
    """Read a page of the report."""
    return page(number)


def open_agent(model: Reader) -> Any:
    middleware = [AmplifierContext(lambda thread: context())]
    return create_agent(model, [read_page], middleware=middleware, checkpointer=InMemorySaver())


async def test_an_agent_outgrows_its_budget_and_every_request_is_valid() -> None:
    model = Reader()
    agent = open_agent(model)
    await agent.ainvoke({"messages": [HumanMessage(TASK)]}, HERE)
    state = await agent.ainvoke({"messages": [HumanMessage(NEXT_TASK)]}, HERE)
    judge([convert_to_openai_messages(request) for request in model.requests])
    whole = [one.content for one in state["messages"] if isinstance(one, ToolMessage)]
    assert whole == [*map(page, range(PAGES))] * 2


def test_an_agent_without_an_event_loop_sends_the_same() -> None:
    model = Reader()
    agent = open_agent(model)
    agent.invoke({"messages": [HumanMessage(TASK)]}, HERE)
    agent.invoke({"messages": [HumanMessage(NEXT_TASK)]}, HERE)
    judge([convert_to_openai_messages(request) for request in model.requests])


async def test_threads_are_kept_apart() -> None:
    model = Reader()
    agent = open_agent(model)
    await agent.ainvoke({"messages": [HumanMessage(TASK)]}, HERE)
    other: Any = {**HERE, "configurable": {"thread_id": "there"}}
    await agent.ainvoke({"messages": [HumanMessage("Something else.")]}, other)
    assert [one.content for one in model.requests[PAGES + 1]] == ["Something else."]
