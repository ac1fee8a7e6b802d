"""On a small corpus made for the purpose, recall and cost of the default manager do not fall behind recorded values.

The corpus and the replay are deterministic, so the values are exact. To record them again:

    AMPLIFIER_CONTEXT_RECORD=1 .venv/bin/python -m pytest tests/lab/test_guard.py
"""

import json
import os
import random
from pathlib import Path
from typing import Any

import pytest

from amplifier_context_testing import coding_session
from amplifier_context_testing.checks.conversation_builder import ConversationBuilder
from amplifier_context_testing.checks.message_shapes import Message
from lab import Session, Size, manager, measure

RECORDED = Path(__file__).with_name("guard.json")
FOUND = ("recall", "located", "far", "far_located", "words", "far_words")
KEPT = ("people", "rules", "agent")
CACHES = ("prefix", "anthropic", "declared", "openai")
MUST_BE_ZERO = ("invalid", "faulty", "empty", "human_lost", "over")

FRACTION = {"coding": 0.25, "service": 0.5}


def corpus(kind: str) -> list[Session]:
    if kind == "coding":
        return [Session(f"coding-{seed}", kind, list(coding_session(160, seed=seed))) for seed in (1, 2)]
    return [Session(f"service-{seed}", kind, service(seed)) for seed in range(6)]


def service(seed: int) -> list[Message]:
    """A customer on the phone, an agent with tools that reuses its call ids, things named early and needed late."""
    rng = random.Random(seed)
    code = lambda: "".join(rng.choice("ABCDEFGHJKLMNPQRSTUVWXYZ0123456789") for _ in range(6))  # noqa: E731
    customer = f"{rng.choice(['mia', 'noah', 'anya'])}_{rng.choice(['li', 'garcia'])}_{rng.randrange(1000, 9999)}"
    orders = [code() + "7" for _ in range(5)]
    talk = ConversationBuilder().system(
        "You help customers of a shop. " + "Follow the policy of the shop word for word. " * 30
    )
    talk.user(f"Hello, I am {customer} and something is wrong with my orders.")
    (made,) = talk.call(("get_customer", {"customer_id": customer}), ids=["call_1"])
    talk.result(
        made, json.dumps({"customer_id": customer, "orders": orders, "payment": f"card_{rng.randrange(10**7)}"})
    )
    talk.say("I see five orders. Which of them is it?")
    for turn, order in enumerate(orders):
        talk.user(f"Look at number {turn + 1} in that list, please. " + "I have waited for it so long. " * 4)
        (made,) = talk.call(("get_order", {"order_id": order}), ids=["call_1"])
        items = [
            {"item_id": f"{rng.randrange(10**9)}", "name": f"lamp {n}", "price": rng.randrange(900)} for n in range(6)
        ]
        talk.result(made, json.dumps({"order_id": order, "status": rng.choice(["sent", "open"]), "items": items}))
        talk.say(f"Order {order} holds {items[0]['item_id']} and five more. What shall I do with it?")
    talk.user("Send the first order again, and refund the last one to my card.")
    talk.call(("resend_order", {"order_id": orders[0], "customer_id": customer}), ids=["call_2"])
    talk.result("call_2", "done").call(
        ("refund_order", {"order_id": orders[-1], "customer_id": customer}), ids=["call_3"]
    )
    return talk.result("call_3", "done").say(f"{orders[0]} is on its way, {orders[-1]} is refunded.").messages


async def figures(kind: str) -> dict[str, Any]:
    report = await measure(corpus(kind), [manager("context-simple")], Size(fraction=FRACTION[kind]))
    return report.rows[0].figures.steady()


def recorded_of(now: dict[str, Any]) -> dict[str, dict[str, float]]:
    """The figures a guard needs: the same ever, better if higher, better if lower."""
    shares = {name: now[name] for name in FOUND} | {f"{name} of the last view": now["last_view"][name] for name in KEPT}
    shares |= {f"{name} of all views": now["all_views"][name] for name in KEPT}
    return {
        "same": {"requests": now["requests"], "outgrown": now["outgrown"]}
        | {name: share["sought"] for name, share in shares.items()},
        "higher": {name: share["found"] for name, share in shares.items()},
        "lower": {f"cost, {name}": now["caches"][name]["cost"] for name in CACHES}
        | {name: now[name] for name in ("breaks", "chapters")},
    }


@pytest.mark.parametrize("kind", ["coding", "service"])
async def test_the_default_manager_is_no_worse_than_recorded(kind: str) -> None:
    now = await figures(kind)
    assert {name: now[name] for name in MUST_BE_ZERO} == dict.fromkeys(MUST_BE_ZERO, 0)
    assert now["far"]["sought"] > 10, "a corpus in which nothing far is needed guards nothing"
    recorded = json.loads(RECORDED.read_text()) if RECORDED.exists() else {}
    if os.environ.get("AMPLIFIER_CONTEXT_RECORD"):
        recorded[kind] = recorded_of(now)
        RECORDED.write_text(json.dumps(recorded, indent=1) + "\n")
    then, found = recorded[kind], recorded_of(now)
    assert found["same"] == then["same"], "the corpus itself has changed"
    worse = {name: (old, found["higher"][name]) for name, old in then["higher"].items() if found["higher"][name] < old}
    worse |= {name: (old, found["lower"][name]) for name, old in then["lower"].items() if found["lower"][name] > old}
    assert not worse, f"recorded and now: {worse}"
