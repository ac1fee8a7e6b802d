"""The adapter for LangChain, in an agent of the library."""

import asyncio
from typing import Any, Self

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


class Reader(BaseChatModel):
    _requests: list[list[BaseMessage]] = PrivateAttr(default_factory=list)

    @property
    def requests(self) -> list[list[BaseMessage]]:
        return self._requests

    @property
    def _llm_type(self) -> str:
        return "reader"

    def bind_tools(self, tools: Any, **options: Any) -> Self:
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


@pytest.mark.parametrize("has_loop", [True, False])
async def test_an_agent_outgrows_its_budget_and_every_request_is_valid(has_loop: bool) -> None:
    model = Reader()
    middleware = [AmplifierContext(lambda thread: context())]
    agent: Any = create_agent(model, [read_page], middleware=middleware, checkpointer=InMemorySaver())

    async def answered(text: str, thread: str = "here") -> list[BaseMessage]:
        config = {"configurable": {"thread_id": thread}, "recursion_limit": 1_000}
        given = {"messages": [HumanMessage(text)]}
        state = await (agent.ainvoke(given, config) if has_loop else asyncio.to_thread(agent.invoke, given, config))
        return state["messages"]

    await answered(TASK)
    messages = await answered(NEXT_TASK)
    judge([convert_to_openai_messages(request) for request in model.requests])
    assert [one.content for one in messages if isinstance(one, ToolMessage)] == [*map(page, range(PAGES))] * 2
    sent = len(model.requests)
    await answered("Something else.", "there")
    assert [one.content for one in model.requests[sent]] == ["Something else."], "threads are kept apart"
