"""A context manager whose chapters a model may write."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Unpack, cast

from amplifier_context_core import ContextManager
from amplifier_context_core.arguments import checked_text
from amplifier_context_core.compaction.ladder import build_ladder
from amplifier_context_core.compaction.strategies import Strategy
from amplifier_context_core.economics.budget import model_of, name_of
from amplifier_context_core.economics.meter import MAX_RATIO, MIN_RATIO
from amplifier_context_core.messages.carriers import can_read, carried_text
from amplifier_context_core.messages.usage import Response, measured
from amplifier_context_core.plugins import installed_plugins
from amplifier_context_core.session.companion import SessionCompanion
from amplifier_context_core.session.session import SessionOptions
from amplifier_context_core.view.candidate import ViewRequest, carrier_of
from amplifier_context_core.view.sent_view import SentView
from amplifier_context_core.view.undo import UNDONE

from .call import is_asking
from .chapters import PlainChapters, TextInChapters, authors_of
from .config import MODULE, SummaryConfig
from .limits import Limits, Prices
from .native import with_newest_carrier
from .records import Records
from .writer import Writer


class SummaryManager(ContextManager, SessionCompanion):
    """A context manager that asks a model for chapters ahead of time, and has the digest's where none is ready.

    It is the `SessionCompanion` of its session, which calls it for each request and saves its summaries.
    """

    def __init__(
        self,
        config: SummaryConfig,
        *,
        providers: Callable[[], Mapping[str, Any]] = dict,
        tools: Callable[[], Mapping[str, Any]] = dict,
        **options: Unpack[SessionOptions],
    ) -> None:
        self.records = Records()
        self._chapters = TextInChapters(self.records)
        options["plugins"] = plugins = options.get("plugins") or installed_plugins()
        given = options.get("ladder")
        steps = build_ladder(config, plugins) if given is None else given
        # The text comes after all that gives way: it takes no room from anything else.
        options["ladder"] = [PlainChapters(), *steps, self._chapters]
        options["carry"] = partial(with_newest_carrier, self.records)
        options["prepare"] = self._chapters.prepare
        options["companion"] = self
        super().__init__(config, **options)
        self.records.history = self.history
        self.limits = Limits()
        self.writer = Writer(config, self.session, self.records, self.limits, providers, tools)
        self._provider: Any = None  # of the last request
        self._estimated = 0.0  # cost of the last request, until its usage is reported
        self._estimated_upto = -1  # last seq of the history that it was estimated at

    # -- requests ---------------------------------------------------------------------------------------------------

    @property
    def late(self) -> Strategy | None:
        return self._chapters if self.records.valid() else None

    async def before_request(self, token_budget: int | None, provider: object) -> None:
        """Wait for a summary before a request that would compact without one (`summary_background: false`)."""
        if self.writer.config.summary_background:
            return
        await self.session.ready()
        await self.writer.wait(self.writer.config.summary_timeout)
        if self.compactor.last_sent is None:
            return
        key = (name_of(provider), model_of(provider) or "")
        request = await self.requests.request_for(self.requests.budget(token_budget, provider).tokens, key)
        async with self.compactor.lock.hold():
            plan = await self.compactor.cache.choose(request)
        if plan.reason is not None:
            self.writer.start(request, provider)
            await self.writer.wait(self.writer.config.summary_timeout)

    def handed_out(self, sent: SentView, provider: object) -> None:
        """Note the last request, and ask for the next summary if it is due."""
        self._provider = provider
        if self.history.last_seq != self._estimated_upto:  # else a page of the host may ask for the view again
            self._estimated_upto = self.history.last_seq
            rest = max(0, sent.counted - sent.shared_prefix_tokens)
            self._estimated = sent.shared_prefix_tokens * Prices().read + rest * Prices().write
            self.limits.session_cost += self._estimated
        # If the session is not resumed, it was closed while this request was on its way.
        if self.session.opening.is_open and self.writer.takes_up(sent):
            request = ViewRequest(sent.limits, sent.prefix, tuple(sent.system), sent.view.counter)
            self.writer.start(request, provider)

    def on_response(self, response: Response) -> None:
        """Note a response; what its input cost bounds what summaries may cost."""
        if is_asking.get():
            return
        super().on_response(response)
        usage, sent, prices = response.usage, self.compactor.last_sent, self.writer.session_prices
        # A report that cannot be of the last request leaves its cost estimated.
        if usage and sent and MIN_RATIO * sent.counted <= measured(usage) <= MAX_RATIO * sent.limits.budget:
            self.limits.session_cost += prices.of_input(usage) / prices.fresh - self._estimated
            self._estimated = 0.0

    def on_context_length_error(self) -> None:
        """Make the next view smaller, unless the request that was too long was one for a summary."""
        if not is_asking.get():
            super().on_context_length_error()

    # -- control ----------------------------------------------------------------------------------------------------

    async def compact(
        self, focus: str | None = None, first: str | None = None, last: str | None = None
    ) -> dict[str, Any]:
        """Compact now; wait for the model at most `compact_wait` seconds. With `first` or `last` no model is asked.

        Returns:
            As of core's manager; with ``author`` (``summary``, ``digest`` or ``native``) and ``chapter``, what the next
            turn will know of what was folded; of a provider's own compaction the words that are not sealed.
        """
        if first is not None or last is not None:
            return await super().compact(focus, first, last)
        focus = None if focus is None else checked_text("focus", focus)
        await self.session.ready()
        directions = self.compactor.directions
        directions.focus = focus or directions.focus
        request = await self.requests.for_last_budget()
        self.writer.start(request, self._provider, by_hand=True)
        await self.writer.wait(self.writer.config.compact_wait)
        report = await super().compact()  # the focus is set; it may have been forgotten since
        if report["compacted"]:
            view = next((view for view in reversed(self.compactor.cache.views) if view.checkpoint), None)
            chapters = [segment for segment in (view.segments() if view else ()) if segment.chapter]
            carriers = [one.message for segment in chapters if (one := carrier_of(segment))]
            if carriers and can_read(carriers[-1], *request.key):
                report["author"], report["chapter"] = "native", carried_text(carriers[-1])
            elif chapters:
                newest = chapters[-1].shown[0].message
                report["author"], report["chapter"] = newest["metadata"]["chapter"], newest["content"]
        return report

    async def explain(self) -> dict[str, Any]:
        """As of core's manager; with ``summary``: the last attempt, calls and their cost, and each chapter's writer."""
        report = await super().explain()
        last = self.compactor.last_sent
        chapters = [segment for segment in (last.view.segments() if last else ()) if segment.chapter]
        written = authors_of(chapters, self.records.valid(), self.history.last_seq)
        return {**report, "summary": {**self.writer.asking.report(), "chapters": written}}

    async def clear(self) -> None:
        """Drop the history and all that derives from it, the summary text too."""
        await self.writer.close()
        self.records.drop_from(0)
        await super().clear()

    async def close(self) -> None:
        """Cancel the summary in flight, save the session and close the store."""
        await self.writer.close()
        try:
            await super().close()
        finally:
            await self.writer.close()  # of a request that was on its way

    # -- saved with the session -------------------------------------------------------------------------------------

    def state(self, revision: int) -> dict[str, Any]:
        return {MODULE: {**self.records.dump(), "limits": self.limits.dump()}}

    def restore(self, state: dict[str, Any], revision: int) -> None:
        if (saved := state.get(MODULE)) is not None:
            if not self.records.restore(saved):
                text = "the saved state of summaries cannot be read; the digest goes on without it"
                self.warnings.note("repair", text)
            self.limits.restore(cast("dict[str, object]", saved).get("limits") if isinstance(saved, dict) else None)
        if isinstance(undone := state.get(UNDONE), int):
            self.records.drop_from(undone)

    def reopened(self) -> None:
        self.records.drop_from(0)

    def undone(self, first: int) -> None:
        self.records.drop_from(first)
