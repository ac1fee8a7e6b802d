"""The command `report`: one page that shows a session and runs nothing of it."""

import base64
import hashlib
import json
import re
import shutil
import stat
import subprocess
from collections import defaultdict
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from amplifier_context_cli.report.replay import replay
from amplifier_context_core import ContextManager, load_config
from amplifier_context_core.messages.usage import Response, Usage
from amplifier_context_core.session.requests import Requests
from amplifier_context_core.view.sent_view import SentView
from tests.cli.kept import in_session, run
from tests.managers import ask, feed
from tests.messages import user, work

HOSTILE = (
    "</script><script>document.title='run'</script><!-- <img src=x onerror=\"document.title='run'\"> ]]> \u2028\u2029"
    '<script type="application/json" data-block="messages">[]</script> & &lt; \'" ${1} `x` \x00 \udcff 漢字 🙂'
)


class Page(HTMLParser):
    """The elements of a page, and the texts in them by tag and block."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts = defaultdict[str, list[str]](list)
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        if self.elements:
            tag, attributes = self.elements[-1]
            self.texts[f"{tag} {attributes.get('data-block') or ''}".strip()].append(data)

    def blocks(self, name: str) -> list[Any]:
        return [json.loads(text) for text in self.texts[f"script {name}"] if text.strip()]


def keep(url: str, said: str = "Then the next part.") -> int:
    """Keep a session that was compacted; return how often."""

    async def fill(manager: ContextManager) -> int:
        for number, message in enumerate(work(30, output=1_500)):
            if message["role"] == "assistant":
                await ask(manager)
            await feed(manager, [message, *([user(said)] if number == 20 else [])])
        return manager.compactor.compactions

    return in_session(url, fill)


def report(url: str, path: Path, *options: str) -> Page:
    run("report", "one", "-o", str(path), *options, at=url)
    return Page(path.read_text(encoding="utf-8"))


def test_the_requests_are_those_of_the_session_and_the_last_is_its_view(url: str, tmp_path: Path) -> None:
    times = keep(url)
    page = report(url, tmp_path / "page.html")
    (session,), messages = page.blocks("session"), [one for block in page.blocks("messages") for one in block]
    assert [row[0] for row in messages] == [f"m{place}" for place in range(1, len(messages) + 1)]
    *compactions, now = (one for one in session["compactions"] if one.get("trigger"))
    assert len(compactions) == times >= 1
    assert session["size"] == 6_000
    assert len(session["requests"]) == 1 + sum(1 for row in messages if row[1] == "assistant")
    before, after = (session["requests"][compactions[0]["request"] + step] for step in (-1, 0))
    assert (before[3], after[3]) == (0, 1)
    chapters = in_session(url, ContextManager.chapters)
    assert now["trigger"] == "now"
    assert [session["chapters"][place]["text"] for place in now["chapters"]] == [one["text"] for one in chapters]
    folded = {place for place, fates in session["fates"] if session["states"][fates[-1][1]] == "folded"}
    spans = [(int(one["mark"][1:]), int(one["to"][1:])) for one in chapters]
    assert folded <= {place for first, last in spans for place in range(first - 1, last)}


def test_no_text_of_a_session_can_leave_its_block_and_the_policy_allows_nothing_else(url: str, tmp_path: Path) -> None:
    keep(url, HOSTILE.replace("\udcff", ""))
    page = report(url, tmp_path / "page.html")
    assert stat.S_IMODE((tmp_path / "page.html").stat().st_mode) == 0o600
    scripts = [attributes.get("data-block") for tag, attributes in page.elements if tag == "script"]
    assert scripts == ["session", "messages", None]
    assert not [name for tag, attributes in page.elements for name in attributes if name.startswith("on")]
    assert not {"img", "iframe", "object", "link", "base"} & {tag for tag, _ in page.elements}
    (messages,) = page.blocks("messages")
    assert any("document.title='run'" in row[3] for row in messages)
    (policy,) = [str(a["content"]) for tag, a in page.elements if tag == "meta" and "default-src" in str(a)]
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    for name, tag in (("script-src", "script"), ("style-src", "style")):
        text = page.texts[tag][0]
        assert rules.pop(name) == f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
    assert set(rules.values()) == {"'none'"}
    assert set(rules) == {"default-src", "base-uri", "form-action"}
    loads = r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(|Function\(|fetch\(|import\("
    assert not re.search(loads, page.texts["script"][0])


@pytest.mark.soak
@pytest.mark.browser
def test_a_browser_shows_a_hostile_session_and_runs_nothing_of_it(tmp_path: Path) -> None:
    browser = shutil.which("chromium") or pytest.skip("needs chromium on the path")
    url = f"sqlite:{tmp_path / 'sessions.db'}"
    keep(url, HOSTILE.replace("\udcff", ""))
    report(url, tmp_path / "page.html")
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=3000", "--dump-dom"]
    command = [browser, *flags, f"file://{tmp_path / 'page.html'}"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    shown = Page(done.stdout)
    assert "".join(shown.texts["title"]) == "Session one"
    assert not [tag for tag, attributes in shown.elements if tag == "img" or "onerror" in attributes]
    assert len([a for tag, a in shown.elements if tag == "div" and "row" in str(a.get("class")).split()]) > 20
    (html,) = (a for tag, a in shown.elements if tag == "html")
    assert int(html["data-ready-ms"] or 0) > 0, "the script ran to its end"


async def test_a_replay_sends_what_the_session_sent_also_where_its_provider_counts_more() -> None:
    sent, again, config = list[list[Any]](), list[list[Any]](), load_config({"max_tokens": 6_000})
    manager = ContextManager(config, session_id="one")
    provider = SimpleNamespace(name="own", default_model="m1")
    for message in work(60, output=1_500):
        if message["role"] == "assistant":
            sent.append(await manager.get_messages_for_request(6_000, provider))
            size = len(json.dumps(sent[-1])) // 3 + 700
            manager.on_response(Response("m1", "own", Usage(size, 10), "stop", None))
        await feed(manager, [message])
    assert manager.compactor.compactions > 2
    plain = Requests.view

    async def noting(requests: Requests, *asked: Any) -> SentView:
        view = await plain(requests, *asked)
        again.append(requests.outgoing(view))
        return view

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Requests, "view", noting)
        await replay(list(manager.history.snapshot()), manager, lambda _: None)
    assert again == sent
