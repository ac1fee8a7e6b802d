"""Condensing: chapters in less room, and what of them goes first."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import pytest

from amplifier_context_core.compaction.checkpoint import DigestEntry, Fact
from amplifier_context_core.compaction.condensing import condense, only_people, shorten_agent
from amplifier_context_core.compaction.digest import digest_round
from amplifier_context_core.compaction.tuning import TUNING
from amplifier_context_core.messages.tokens import approx_token_counter
from tests.core.drafts import rounds
from tests.messages import Message, call, result, says, user

FILE = "\n".join(f"def part_{number}(value): return load_batch_{number}(value)" for number in range(60))
RULES = [f"Never rename the table orders_{n} without a review." for n in range(12)]


def lines(*messages: Message) -> list[DigestEntry]:
    known: set[str] = set()
    return [digest_round(round_, known, approx_token_counter, share=0.25) for round_ in rounds(*messages)]


def kept(made: Sequence[DigestEntry], share: float, **tuning: Any) -> list[DigestEntry]:
    condensed = condense(made, share, approx_token_counter, given=dataclasses.replace(TUNING, **tuning))
    assert len(condensed) == len(made)
    return [entry for entry in condensed if entry is not None]


def text_of(made: Sequence[DigestEntry]) -> str:
    return "\n".join(entry.text for entry in made)


def condensed(share: float) -> tuple[list[Any], list[Any]]:
    messages = [m for n in range(30) for m in (call(f"c{n}", path=f"src/mod_{n}.py"), result(f"c{n}", FILE))]
    made = lines(*messages)
    return made, kept(made, share)


@pytest.mark.parametrize("share", [0.8, 0.5, 0.3])
def test_condensed_lines_take_about_their_share(share: float) -> None:
    before, after = condensed(share)
    size = sum(len(line.text) for line in after)
    assert size <= sum(len(line.text) for line in before) * share * 1.1 + 30 * 30


def test_condensed_lines_keep_their_marks_and_spans() -> None:
    before, after = condensed(0.4)
    spans = [(line.first, line.last, line.original_tokens) for line in before]
    assert [(line.first, line.last, line.original_tokens) for line in after] == spans[len(before) - len(after) :]
    for line in after:
        assert line.text.startswith(f"m{line.first} ")


def test_what_a_call_was_about_outlives_what_it_printed() -> None:
    _, after = condensed(0.4)
    text = "\n".join(line.text for line in after)
    assert sum(f"src/mod_{n}.py" in text for n in range(30)) >= 25


def test_a_path_at_the_edge_of_what_is_cut_stays_in_its_place() -> None:
    path = "/home/anna/work/project/src/loader/cache_core.py"
    messages = [
        m
        for n in range(20)
        for m in (
            says(
                None, tool_calls=[{"id": f"c{n}", "tool": "read_file", "arguments": {"path": path, "offset": n * 100}}]
            ),
            result(f"c{n}", FILE),
        )
    ]
    whole = [line for line in kept(lines(*messages), 0.6) if " …" in line.text]
    assert len(whole) >= 2
    for line in whole:
        assert line.text.startswith(f"m{line.first} read_file {path} …")


def test_of_the_oldest_calls_the_tool_and_what_it_was_called_on_stay() -> None:
    messages = [m for n in range(40) for m in (call(f"c{n}", path=f"src/mod_{n}.py"), result(f"c{n}", FILE))]
    after = kept(lines(*messages), 0.4)
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
    made = lines(*messages)
    text = text_of(kept(made, 0.6))
    assert "60 lines" in text_of(made)
    assert "60 lines" not in text
    assert '"' in text.splitlines()[-1]


def test_names_of_a_sentence_that_goes_are_kept_with_the_call_beside_it() -> None:
    messages = [
        m
        for n in range(20)
        for m in (
            call(f"c{n}", path=f"src/mod_{n}.py", content=f"Let me look at the ticket ORDER-{n}7 in some more detail."),
            result(f"c{n}", FILE),
        )
    ]
    made = lines(*messages)
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


def test_rules_of_people_go_last() -> None:
    made = lines(*conversation())
    text = text_of(kept(made, 0.2))
    assert all(rule in text for rule in RULES)
    assert "Let me look" not in text


@pytest.mark.parametrize("share", [0.5, 0.1, 0.001])
def test_rules_stay_however_little_room_there_is(share: float) -> None:
    made = lines(*conversation())
    for _ in range(3):
        made = kept(made, share)
    assert all(rule in text_of(made) for rule in RULES)


def test_rules_are_word_for_word_after_twenty_condensings() -> None:
    made = lines(*conversation())
    for round_ in range(20):
        more = lines(*conversation(1))
        made = kept([*made, *more], 0.8)
        text = text_of(made)
        assert all(rule in text for rule in RULES), round_


def test_what_people_pasted_gives_way_to_what_the_agent_concluded() -> None:
    pasted = "\n".join(f"At {n} o'clock the server took {n * 7} requests from the depot." for n in range(120))
    made = lines(user(pasted), *(says(f"The cause of fault {n} is a lock in part {n}.") for n in range(12)))
    text = text_of(kept(made, 0.3))
    assert text.count("The cause of fault") == 12
    assert text.count("o'clock") < 60


def test_a_conclusion_of_the_agent_outlives_an_announcement() -> None:
    text = text_of(kept(lines(*conversation()), 0.5))
    assert text.count("The cause of fault") > text.count("Let me look")


def test_sentences_are_never_cut_in_the_middle() -> None:
    made = lines(*conversation())
    whole = {sentence.text for entry in made for fact in entry.facts for sentence in fact.sentences}
    for share in (0.8, 0.5, 0.3, 0.1):
        left = [sentence for entry in kept(made, share) for fact in entry.facts for sentence in fact.sentences]
        assert all(sentence.text in whole or sentence.worth < 0 for sentence in left)


def test_a_sentence_that_leaves_one_gap_is_left_out_too() -> None:
    """Such a speech has as many parts as before: one of them is the mark of the gap."""
    made = lines(*(says(f"The fault {n} is a lock. Let me now look at number {n} of them.") for n in range(20)))
    text = text_of(shorten_agent(made, 20 * 44, approx_token_counter))
    assert text.count("is a lock.") == 20
    assert "Let me" not in text
    assert text.count("…") == 20


def test_a_word_of_an_agent_that_quotes_a_rule_is_no_rule() -> None:
    quoting = " ".join(f"Never ever touch file number {n}, says the tool." for n in range(40))
    made = lines(user(RULES[0]), says(quoting), *conversation(3))
    assert RULES[0] in text_of(kept(made, 0.15))
    agent = [fact for entry in made for fact in entry.facts if fact.speaker == "agent"]
    assert all(sentence.worth < 1.0 for fact in agent for sentence in fact.sentences)


def test_the_agents_words_are_brought_into_their_room_alone() -> None:
    made = lines(*conversation())
    short = shorten_agent(made, 200, approx_token_counter)
    spoken = [fact for entry in short for fact in entry.facts if fact.speaker == "agent" and fact.sentences]
    assert 0 < sum(len(fact.text) for fact in spoken) <= 400
    people = [fact for entry in short for fact in entry.facts if fact.speaker == "person"]
    assert people == [fact for entry in made for fact in entry.facts if fact.speaker == "person"]
    assert all(fact.sentences or fact.names or not fact.speaker for entry in short for fact in entry.facts)


def test_an_entry_that_says_no_more_is_left_out() -> None:
    made = lines(*(says(f"It was a long way to get here, number {n}.") for n in range(30)))
    condensed = condense(made, 0.2, approx_token_counter)
    assert None in condensed
    assert all(entry is None or any(fact.sentences for fact in entry.facts) for entry in condensed)


def test_only_rules_leaves_what_people_demanded_and_where() -> None:
    made = lines(*conversation())
    left = only_people(made, approx_token_counter)
    assert [entry.text for entry in left] == [
        f"m{entry.first} user: … {rule} …" for entry, rule in zip(left, RULES, strict=True)
    ]


@pytest.mark.parametrize("share", [0.95, 0.9, 0.5])
@pytest.mark.parametrize("kind", ["people", "rules", "agent", "calls"])
def test_what_one_kind_does_not_use_the_others_may(kind: str, share: float) -> None:
    messages: list[Message] = []
    for n in range(30):
        messages += {
            "people": [user(f"The weather on day {n} is fine with all of us here.")],
            "rules": [user(f"Never rename the table orders_{n} without a review.")],
            "agent": [says(f"The cause of fault {n} is a lock that is never freed.")],
            "calls": [call(f"c{n}", path=f"src/deep/folder/of/the/project/mod_{n}.py"), result(f"c{n}", "done")],
        }[kind]
    made = lines(*messages)
    room = len(text_of(made)) * (share if kind != "rules" else 1.0)
    assert 0.8 * room <= len(text_of(kept(made, share))) <= 1.02 * room


def test_shortening_speech_full_of_names_keeps_to_its_room() -> None:
    listed = [says("\n".join(f"- src/pkg_{n}/module_{m}.py" for m in range(40))) for n in range(10)]
    short = shorten_agent(lines(*listed), 300, approx_token_counter)
    assert len(text_of(short)) < 0.35 * len(text_of(lines(*listed)))


def test_names_without_scores_of_a_plug_in_are_condensed_too() -> None:
    (made,) = lines(says("It was so."))
    bare = Fact("m1 mine", names=("foo_1", "foo_2"), speaker="agent")
    entry = made.with_facts([bare, Fact("m1 other", names=("bar_1",))], approx_token_counter)
    (left,) = kept([entry], 0.9)
    assert "bar_1" in left.text


def test_one_ranking_gives_a_round_that_concluded_more_room_than_one_that_announced() -> None:
    announced = "".join(f"Let me look at file {n} of the loader before anything else is done. " for n in range(10))
    concluded = "".join(f"The cause is lock {n} that is never freed, because the loader fails. " for n in range(10))
    made = lines(says(announced), says(concluded))
    together, alone = (kept(made, 0.5, one_ranking=on, agent=0.9) for on in (True, False))
    assert ["Let me look" in text_of(one) for one in (together, alone)] == [False, True]
    assert all("The cause is lock" in text_of(one) for one in (together, alone))


def test_what_an_agent_says_at_the_end_goes_before_what_it_says_beside_calls() -> None:
    beside = [f"The table of depot {n} is wrong because of its key." for n in range(12)]
    ended = "The table of ledgers is wrong because of its key."
    work = [
        m
        for n, said in enumerate(beside)
        for m in (call(f"c{n}", path=f"src/mod_{n}.py", content=said), result(f"c{n}", FILE))
    ]
    text = text_of(kept(lines(*work[:2], says(ended), *work[2:]), 0.35))
    assert ended in text
    assert beside[0] not in text


def test_a_name_that_is_cut_in_the_middle_is_kept_whole() -> None:
    url = "https://example.com/" + "/".join(f"part_{n}" for n in range(8))
    others = [m for n in range(30) for m in (call(f"c{n}", path=f"src/mod_{n}.py"), result(f"c{n}", FILE))]
    made = lines(*others, call("last", path="src/last.py"), result("last", url))
    shortened = kept(made, 0.3)[-1]
    assert f'"{url[:10]}' in shortened.text
    assert url not in shortened.facts[-1].outcome
    assert shortened.facts[-1].names[0] == url
