"""A long chat of people: what they wrote long ago is shortened by sentences, not dropped by messages."""

from __future__ import annotations

import random

from tests.managers import ask, feed, new_manager
from tests.messages import Message, text, user

PHRASES = (
    "It was so good to hear from you again after such a long week.",
    "I hope that you and your family are all doing well at the moment.",
    "Thank you so much for listening, it always means a lot to me.",
    "Let us talk again soon and see how the rest of the week goes.",
)
PLACES = ("Lisbon", "Bergen", "Quito", "Osaka", "Tromso", "Valletta", "Windhoek", "Zagreb", "Nairobi", "Perth")
THINGS = ("violin", "kayak", "telescope", "sewing machine", "beehive", "motorbike", "greenhouse", "loom", "harp")


def chat(messages: int) -> tuple[list[Message], list[str]]:
    """Return what two people write, both as users: sentences that come again, and one with a fact; and all facts."""
    rng = random.Random("chat")
    facts = [
        f"My {relation} in {place} sold the {thing} for {rng.randrange(100, 999)}."
        for relation in ("aunt", "cousin", "neighbour", "tutor")
        for place in PLACES
        for thing in THINGS
    ]
    rng.shuffle(facts)
    written = [
        user(" ".join([f"{('Nora', 'Felix')[number % 2]} writes:", *rng.sample(PHRASES, 3), fact]))
        for number, fact in enumerate(facts[:messages])
    ]
    return written, facts[:messages]


def dear_marks(text: str) -> int:
    """Count so that the mark and speaker of a line cost more than a message does beside its text."""
    return (len(text) + 1) // 2


async def test_old_facts_stay_where_a_chapter_of_whole_messages_would_be_no_smaller() -> None:
    share = 0.3
    messages, facts = chat(160)
    manager = new_manager(counter=dear_marks)
    await feed(manager, messages)
    view = text(await ask(manager, int(share * sum(dear_marks(message["content"]) + 4 for message in messages))))
    kept = [fact in view for fact in facts]
    assert sum(kept[1:80]) > 0.7 * sum(kept[80:]) > 0
    assert sum(kept) > 0.8 * share * len(facts)
