"""The adapter for LangChain, in an agent of the library."""

import asyncio
from typing import Any, ClassVar, Self

import pytest

from tests.adapters.scenario import ANSWER, NEXT_TASK, TASK, Script, context, has_each_page, judge, page

pytest.importorskip("langchain", reason="`make adapters` installs it")

from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, convert_to_openai_messages
from langchain_core.outputs import ChatGeneration, ChatResult
from langgraph.checkpoint.memory import InMemorySaver
from pydantic import Field

from examples.adapters.langchain_context import AmplifierContext


class Reader(BaseChatModel):
    script: Script = Field(default_factory=Script)

    model_config: ClassVar = {"arbitrary_types_allowed": True}

    @property
    def _llm_type(self) -> str:
        return "reader"

    def bind_tools(self, tools: Any, **options: Any) -> Self:
        return self

    def _generate(self, messages: list[BaseMessage], *_: Any, **options: Any) -> ChatResult:
        call = self.script.call(messages)
        calls = [{"id": call[0], "name": "read_page", "args": call[1]}] if call else []
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
    judge([convert_to_openai_messages(request) for request in model.script.requests])
    assert has_each_page(convert_to_openai_messages(messages))
    sent = len(model.script.requests)
    await answered("Something else.", "there")
    assert [one.content for one in model.script.requests[sent]] == ["Something else."], "threads are kept apart"
