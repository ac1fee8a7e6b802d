"""Lists of messages, as OpenAI's and Anthropic's APIs take them and as hosts keep them: JSON, or a message a line.

Both shapes of messages are this package's own, so they are carried whole.

Pure: no I/O, no clock.
"""

from __future__ import annotations

from typing import Any

from .conversation import Conversation, UnknownFormat, items, mapping


def read_messages(value: object) -> Conversation:
    """Return the conversation of a list of messages, or of a request: an object with `messages` and perhaps `system`.

    Raises:
        UnknownFormat: it is neither.
    """
    request = mapping(value)
    listed = items(request.get("messages")) if request is not None else items(value)
    messages = [message for one in listed if (message := mapping(one)) is not None and "role" in message]
    if not messages or len(messages) < len(listed):
        raise UnknownFormat("no list of messages: each must be an object with a `role`")
    # `show --json` writes marks; they are of that session.
    made = Conversation([{key: part for key, part in message.items() if key != "mark"} for message in messages])
    if request is not None and request.get("system"):
        made.messages.insert(0, {"role": "system", "content": request["system"]})
    return made


def is_message_list(value: Any) -> bool:
    """True for what `read_messages` reads."""
    try:
        return bool(read_messages(value).messages)
    except UnknownFormat:
        return False
