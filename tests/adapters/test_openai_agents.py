"""The adapter for the OpenAI Agents SDK, in an agent of the library."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from amplifier_context_core import ContextManager, open_store
from tests.adapters.scenario import ANSWER, NEXT_TASK, TASK, Message, Script, asks, context, has_each_page, judge, page
from tests.messages import result

pytest.importorskip("agents", reason="`make adapters` installs it")

from agents import Agent, Model, ModelResponse, RunConfig, Runner, Usage, function_tool
from agents.memory import Session
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

from examples.adapters.openai_agents_context import AmplifierSession, fit

MANY = 1_000  # turns of one run


def as_openai(item: Any) -> Message:
    if item.get("type") == "function_call":
        return asks(item["call_id"], item["name"], item["arguments"])
    if item.get("type") == "function_call_output":
        return result(item["call_id"], item["output"])
    content = item["content"]
    text = content if isinstance(content, str) else "".join(part["text"] for part in content)
    return {"role": item["role"], "content": text}


class Reader(Model):
    def __init__(self) -> None:
        self.script = Script()

    async def get_response(self, system_instructions: Any, input: Any, *_: Any, **options: Any) -> ModelResponse:
        call, id = self.script.call(input), f"id_{len(self.script.requests)}"
        if call:
            asked = {"call_id": call[0], "name": "read_page", "arguments": json.dumps(call[1])}
            output: Any = ResponseFunctionToolCall(type="function_call", id=f"fc_{id}", **asked)
        else:
            text = ResponseOutputText(type="output_text", text=ANSWER, annotations=[])
            said: Any = {"role": "assistant", "status": "completed", "content": [text]}
            output = ResponseOutputMessage(type="message", id=f"msg_{id}", **said)
        return ModelResponse(output=[output], usage=Usage(), response_id=None)

    def stream_response(self, *_: Any, **options: Any) -> Any:
        raise NotImplementedError


@function_tool
def read_page(number: int) -> str:
    """Read a page of the report."""
    return page(number)


def kept_in(folder: Path) -> ContextManager:
    return ContextManager(session_id="talk", store=open_store(f"sqlite:{folder / 'talks.db'}"))


async def test_an_agent_outgrows_its_budget_and_every_request_is_valid(tmp_path: Path) -> None:
    reader, view = Reader(), context()
    agent = Agent(name="reader", model=reader, tools=[read_page])
    config = RunConfig(call_model_input_filter=partial(fit, view), tracing_disabled=True)
    kept = kept_in(tmp_path)
    await Runner.run(agent, TASK, session=AmplifierSession(kept), run_config=config, max_turns=MANY)
    await kept.close()
    kept = kept_in(tmp_path)  # the next process
    session = AmplifierSession(kept)
    assert isinstance(session, Session)
    await Runner.run(agent, NEXT_TASK, session=session, run_config=config, max_turns=MANY)
    judge([[*map(as_openai, request)] for request in reader.script.requests])
    assert has_each_page([*map(as_openai, await session.get_items())])
    await kept.close()


async def test_a_session_gives_back_the_items_that_it_was_given_but_for_what_was_erased() -> None:
    items: list[Any] = [
        {"role": "user", "content": "Hi"},
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "abc"},
        {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "look", "arguments": "{}"},
        {"type": "function_call", "id": "fc_2", "call_id": "c2", "name": "look", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "one"},
        {"type": "function_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "two"}]},
        {"type": "web_search_call", "id": "ws_1", "status": "completed"},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Seen."}]},
    ]
    session = AmplifierSession(kept := ContextManager())
    await session.add_items(items)
    assert await session.get_items() == items
    assert (await session.get_items(3), await session.get_items(0)) == (items[-3:], [])
    assert [await session.pop_item() for _ in range(2)] == [items[-1], items[-2]]
    await session.add_items(items[-2:])
    assert await session.get_items() == items
    await kept.forget(["m1"])
    assert await session.get_items() == [{"role": "user", "content": "(erased)"}, *items[1:]]
    await session.clear_session()
    assert (await session.get_items(), await session.pop_item()) == ([], None)
