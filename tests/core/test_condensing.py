"""Condensing: chapters in less room, and what of them goes first."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import pytest

from amplifier_context_core.compaction import tuning
from amplifier_context_core.compaction.checkpoint import DigestEntry
from amplifier_context_core.compaction.condensing import condense
from amplifier_context_core.messages.tokens import approx_token_counter
from tests.core.drafts import digests
from tests.messages import Message, call, result, says, user

FILE = "\n".join(f"def part_{number}(value): return load_batch_{number}(value)" for number in range(60))
RULES = [f"Never rename the table orders_{n} without a review." for n in range(12)]


def kept(made: Sequence[DigestEntry], share: float, **constants: Any) -> list[DigestEntry]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tuning, "TUNING", dataclasses.replace(tuning.TUNING, **constants))
        condensed = condense(made, share, approx_token_counter)
    assert len(condensed) == len(made)
    return [entry for entry in condensed if entry is not None]


def text_of(made: Sequence[DigestEntry]) -> str:
    return "\n".join(entry.text for entry in made)


def test_of_the_oldest_calls_the_tool_and_what_it_was_called_on_stay() -> None:
    messages = [m for n in range(40) for m in (call(f"c{n}", path=f"src/mod_{n}.py"), result(f"c{n}", FILE))]
    after = kept(digests(*messages), 0.4)
    texts = [line.text for line in after]
    assert len(texts) >= 36
    assert texts[0].startswith(f"m{after[0].first} read; src/mod_")
    assert texts[-1].startswith(f"m{after[-1].first} read src/mod_39.py")
    again = kept(after, 0.5)
    assert all(fact.names or fact.subject.count(" ") > 1 for line in again for fact in line.facts)
    assert sum(len(line.text) for line in again) <= sum(len(text) for text in texts) * 0.5


def test_the_size_of_an_output_goes_and_its_trouble_stays() -> None:
    messages = [
        *(m for n in range(9) for m in (call(f"c{n}", path=f"src/mod_{n}.py"), result(f"c{n}", FILE))),
        call("last", path="src/last.py"),
        result("last", "Traceback (most recent call last)\nValueError: bad_token_9f31\n" + FILE),
    ]
    made = digests(*messages)
    text = text_of(kept(made, 0.6))
    assert "60 lines" in text_of(made)
    assert "60 lines" not in text
    assert '"' in text.splitlines()[-1]


def test_a_short_error_stays_whole_with_what_was_called() -> None:
    failed = [call("last", path="src/last.py"), result("last", "Error: the sum is 174, but 160 was paid")]
    messages = [*failed, *(m for n in range(9) for m in (call(f"c{n}", path=f"a_{n}.py"), result(f"c{n}", FILE)))]
    assert '-> "Error: the sum is 174, but 160 was paid"' in text_of(kept(digests(*messages), 0.6))


def test_how_a_call_ended_outlasts_newer_calls_that_only_listed_or_read() -> None:
    failed = "3 failed, 40 passed in 2.1s\nE   ValueError: bad_token_9f31\n" + FILE
    reads = [m for n in range(30) for m in (call(f"c{n}", path=f"src/mod_{n}.py"), result(f"c{n}", FILE))]
    after = kept(digests(call("t", name="run", path="make test"), result("t", failed), *reads), 0.4)
    assert '"3 failed, 40 passed in 2.1s"' in after[0].text
    assert after[1].text.startswith(f"m{after[1].first} read; src/mod_")


def test_names_of_a_sentence_that_goes_are_kept_with_the_call_beside_it() -> None:
    messages = [
        m
        for n in range(20)
        for m in (
            call(f"c{n}", path=f"src/mod_{n}.py", content=f"Let me look at the ticket ORDER-{n}7 in some more detail."),
            result(f"c{n}", FILE),
        )
    ]
    made = digests(*messages)
    assert "Let me look" in made[0].text
    text = text_of(kept(made, 0.4, agent=0.0))
    assert "Let me look" not in text
    assert "ORDER-197" in text


def conversation(turns: int = 12) -> list[Message]:
    """People talk, the agent announces, works, and concludes."""
    messages: list[Message] = []
    for n in range(turns):
        messages += [
            user(f"I read what you did in part {n} so far. {RULES[n % len(RULES)]} The rest is fine with me."),
            call(f"c{n}", path=f"src/mod_{n}.py", content=f"Let me look at the file of part {n} first."),
            result(f"c{n}", FILE),
            says(f"The cause of fault {n} is a lock that is never freed. It was a long way to get here {n}."),
        ]
    return messages


@pytest.mark.parametrize("share", [0.5, 0.1, 0.001])
def test_rules_stay_however_little_room_there_is(share: float) -> None:
    made = digests(*conversation())
    for _ in range(3):
        made = kept(made, share)
    assert all(rule in text_of(made) for rule in RULES)


def test_one_ranking_gives_a_round_that_concluded_more_room_than_one_that_announced() -> None:
    announced = "".join(f"Let me look at file {n} of the loader before anything else is done. " for n in range(10))
    concluded = "".join(f"The cause is lock {n} that is never freed, because the loader fails. " for n in range(10))
    made = digests(says(announced), says(concluded))
    together = text_of(kept(made, 0.5, agent=0.9))
    assert "Let me look" not in together
    assert "The cause is lock" in together


def test_a_name_that_is_cut_in_the_middle_is_kept_whole() -> None:
    url = "https://example.com/" + "/".join(f"part_{n}" for n in range(8))
    others = [m for n in range(30) for m in (call(f"c{n}", path=f"src/mod_{n}.py"), result(f"c{n}", FILE))]
    made = digests(*others, call("last", path="src/last.py"), result("last", url))
    shortened = kept(made, 0.3)[-1]
    assert f'"{url[:10]}' in shortened.text
    assert url not in shortened.facts[-1].outcome
    assert shortened.facts[-1].names[0] == url
