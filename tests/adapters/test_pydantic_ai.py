"""The adapter for pydantic-ai, in an agent of the library."""

import json

import pytest

from tests.adapters.scenario import ANSWER, NEXT_TASK, TASK, Message, Script, asks, context, has_each_page, judge, page
from tests.messages import result, says, user

pytest.importorskip("pydantic_ai", reason="`make adapters` installs it")

from pydantic_ai import Agent
from pydantic_ai import messages as ai
from pydantic_ai.models.function import AgentInfo, FunctionModel

from examples.adapters.pydantic_ai_context import AmplifierContext


def as_openai(messages: list[ai.ModelMessage]) -> list[Message]:
    return [part_as_openai(part) for message in messages for part in message.parts]


def part_as_openai(part: object) -> Message:
    if isinstance(part, ai.ToolCallPart):
        return asks(part.tool_call_id, part.tool_name, part.args_as_json_str())
    if isinstance(part, ai.ToolReturnPart):
        return result(part.tool_call_id, part.model_response_str())
    assert isinstance(part, ai.UserPromptPart | ai.TextPart)
    return (user if isinstance(part, ai.UserPromptPart) else says)(part.content)


class Reader(Script):
    def __call__(self, messages: list[ai.ModelMessage], info: AgentInfo) -> ai.ModelResponse:
        call = self.call(messages)
        said = ai.ToolCallPart("read_page", json.dumps(call[1]), call[0]) if call else ai.TextPart(ANSWER)
        return ai.ModelResponse(parts=[said])


async def test_an_agent_outgrows_its_budget_and_every_request_is_valid() -> None:
    reader = Reader()
    agent = Agent(FunctionModel(reader), capabilities=[AmplifierContext(context())])

    @agent.tool_plain
    def read_page(number: int) -> str:
        return page(number)

    first = await agent.run(TASK)
    second = await agent.run(NEXT_TASK, message_history=first.all_messages())
    judge([as_openai(request) for request in reader.requests])
    assert second.output == ANSWER
    assert has_each_page(as_openai(second.all_messages()))
