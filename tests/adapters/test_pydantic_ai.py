"""The adapter for pydantic-ai, in an agent of the library."""

import pytest

from tests.adapters.scenario import ANSWER, NEXT_TASK, PAGES, TASK, Message, arguments, call, context, judge, page

pytest.importorskip("pydantic_ai", reason="`make adapters` installs it")

from pydantic_ai import Agent
from pydantic_ai import messages as ai
from pydantic_ai.models.function import AgentInfo, FunctionModel

from examples.adapters.pydantic_ai_context import AmplifierContext


def as_openai(messages: list[ai.ModelMessage]) -> list[Message]:
    made: list[Message] = []
    for part in (part for message in messages for part in message.parts):
        if isinstance(part, ai.ToolCallPart):
            function = {"name": part.tool_name, "arguments": part.args_as_json_str()}
            made.append(
                {
                    "role": "assistant",
                    "content": "",
                    "tool_calls": [{"id": part.tool_call_id, "type": "function", "function": function}],
                }
            )
        elif isinstance(part, ai.ToolReturnPart):
            made.append({"role": "tool", "tool_call_id": part.tool_call_id, "content": part.model_response_str()})
        else:
            assert isinstance(part, ai.UserPromptPart | ai.TextPart)
            made.append(
                {"role": "user" if isinstance(part, ai.UserPromptPart) else "assistant", "content": part.content}
            )
    return made


class Reader:
    def __init__(self) -> None:
        self.requests: list[list[ai.ModelMessage]] = []

    def __call__(self, messages: list[ai.ModelMessage], info: AgentInfo) -> ai.ModelResponse:
        turn, step = divmod(len(self.requests), PAGES + 1)
        self.requests.append(list(messages))
        if step == PAGES:
            return ai.ModelResponse(parts=[ai.TextPart(ANSWER)])
        return ai.ModelResponse(parts=[ai.ToolCallPart("read_page", arguments(step), call(turn + 1, step)[0])])


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
    whole = second.all_messages()
    assert [part["content"] for part in as_openai(whole) if part["role"] == "tool"] == [*map(page, range(PAGES))] * 2
