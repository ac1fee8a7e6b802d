"""Lists of messages for strategies."""

from __future__ import annotations

from tests.messages import Message, call, result, says, system, user

LONG = "\n".join(f"row {number:04d} of the table" for number in range(200))
PINNED = {"pinned": True}


def talk(rounds: int = 6, output: str = LONG) -> list[Message]:
    """A system prompt, the task, tool rounds with a word between them, another prompt, an answer."""
    messages = [system("Be careful."), user("The task: fix src/loader.py.")]
    for number in range(rounds):
        messages += [call(f"c{number}", path=f"src/m{number}.py"), result(f"c{number}", f"{number}\n{output}")]
    return [*messages, says("Half way."), user("Go on."), call("last"), result("last", output), says("Done.")]


def score(message: Message) -> float:
    return 10.0 if "important" in str(message.get("content")) else 1.0
