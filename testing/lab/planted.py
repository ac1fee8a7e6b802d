"""Rules planted into a recording: stated once by a person, at a random place, and to be kept word for word.

Recorded rules are few. Planted ones come as a message of their own, most of them between ordinary sentences, wherever
no call waits for its result. They are replayed apart from the recording itself, whose figures they leave alone.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import product

from ..checks.message_shapes import Message, calls_of, results_of
from .sessions import Session

_RULES = (
    "Never {verb} the {thing} {when}.",
    "You must not {verb} the {thing} {when}.",
    "Always ask me before you {verb} the {thing} {when}.",
    "Please {verb} the {thing} only {when}.",
    "Make sure that no script can {verb} the {thing} {when}.",
    "Don't {verb} the {thing} {when}, whatever the tests say.",
    "The {thing} should be left as it is {when}, so do not {verb} it.",
    "Instead of asking again, {verb} the {thing} {when}.",
)
_VERBS = ("rename", "rewrite", "delete", "reformat", "move", "publish", "merge", "log", "cache", "upgrade", "mock")
_THINGS = (
    "billing adapter", "release notes", "login page", "retry queue", "staging database", "price table", "audit trail",
    "feature flags", "nightly report", "vendor folder", "search index", "welcome mail", "license header", "export job",
    "session cookie", "build cache", "payment webhook", "user avatar", "color palette", "error budget", "rate limiter",
)  # fmt: skip
_WHEN = (
    "on the main branch", "before Friday", "during a migration", "while the freeze lasts", "without a review",
    "in production", "after the demo", "outside office hours", "when two people are on call", "in the same commit",
    "for customers in Japan", "until legal has answered", "on a shared machine", "behind the proxy",
)  # fmt: skip
_TALK = (
    "I looked at what you did so far and it reads well.",
    "The last run took longer than I thought it would.",
    "We had a short talk about this in the team today.",
    "I am still reading through the second half of it.",
    "Nothing else has changed on my side since this morning.",
    "That was the part I was unsure about, thanks.",
    "Two colleagues of mine will look at it tomorrow.",
    "I have seen the same thing on my own machine.",
)


def plant(sessions: Sequence[Session], count: int, seed: str = "planted") -> list[tuple[Session, frozenset[str]]]:
    """Return each session with rules planted into it, and the rules.

    Args:
        sessions: the recordings.
        count: rules in all; each session has a share of them by its length.
        seed: the same seed, count and sessions give the same rules at the same places.

    Raises:
        ValueError: more rules are asked for than there are different ones.
    """
    rng = random.Random(seed)
    choices = [_RULES, _VERBS, _THINGS, _WHEN]
    every = [rule.format(verb=verb, thing=thing, when=when) for rule, verb, thing, when in product(*choices)]
    if count > len(every):
        raise ValueError(f"{count:,} rules cannot be planted: there are {len(every):,} different ones")
    rules = rng.sample(every, count)
    planted: list[tuple[Session, frozenset[str]]] = []
    for session, share in zip(sessions, _shares([len(session.messages) for session in sessions], count), strict=True):
        own, rules = rules[:share], rules[share:]
        messages = _with(session.messages, own, rng)
        planted.append((replace(session, messages=messages, probes=(), questions=(), host=frozenset()), frozenset(own)))
    return planted


def _with(messages: Sequence[Message], rules: Sequence[str], rng: random.Random) -> list[Message]:
    places = _places(messages)
    put: dict[int, list[Message]] = {}
    for rule in rules:
        talk: list[str] = [*rng.sample(_TALK, rng.randrange(4))]
        talk.insert(rng.randrange(len(talk) + 1), rule)
        put.setdefault(rng.choice(places), []).append({"role": "user", "content": " ".join(talk)})
    return [one for index, message in enumerate(messages) for one in (*put.get(index, ()), message)]


def _places(messages: Sequence[Message]) -> list[int]:
    """Return the indices before which a person can speak: not the first message, and no call waits for its result."""
    places: list[int] = []
    waiting: set[str] = set()
    answers = [{str(result.id) for result in results_of(message)} for message in messages]
    late = set[str]().union(*answers)
    for index, message in enumerate(messages):
        if index and not waiting and not answers[index]:
            places.append(index)
        waiting -= answers[index]
        if message.get("role") == "assistant":
            waiting = {str(call.id) for call in calls_of(message)} & late
    return places or [0]


def _shares(weights: Sequence[int], count: int) -> list[int]:
    """Divide a count by weights, as evenly as whole numbers allow."""
    total, given, before = sum(weights), 0, 0
    shares: list[int] = []
    for weight in weights:
        before += weight
        upto = round(count * before / total)
        shares.append(upto - given)
        given = upto
    return shares
