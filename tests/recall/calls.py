"""The tool on a context manager, without the kernel: capabilities are what the kernel would hand it."""

from functools import partial
from typing import Any

from amplifier_context_core import ContextManager
from amplifier_context_core.kernel import capabilities_of
from amplifier_context_recall import ContextRecallTool, RecallConfig
from amplifier_context_recall.lacking import names_lacking_in


def capabilities_beside(manager: ContextManager) -> dict[str, Any]:
    return capabilities_of(manager) | {"context.lacking_names": partial(names_lacking_in, manager)}


def tool_of(manager: ContextManager, **config: Any) -> ContextRecallTool:
    return ContextRecallTool(capabilities_beside(manager).get, RecallConfig.model_validate(config))


async def recalled(tool: ContextRecallTool, operation: str, /, **arguments: Any) -> str:
    result = await tool.execute({"operation": operation, **arguments})
    assert result.success, result.output
    return str(result.output)


async def refused(tool: ContextRecallTool, operation: str, /, **arguments: Any) -> str:
    result = await tool.execute({"operation": operation, **arguments})
    assert not result.success, result.output
    return str(result.output)


def recall_round(number: int, arguments: dict[str, Any], output: str) -> list[dict[str, Any]]:
    """A call of the tool and its result, as loop-basic stores them."""
    call = {"id": f"recall_{number}", "tool": "context_recall", "arguments": arguments}
    return [
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": call["id"], "content": output},
    ]
