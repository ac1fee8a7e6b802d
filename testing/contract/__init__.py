"""The store contract by claim groups, one file a group; `store_contract` joins them into classes to inherit."""

import pytest

_CLAIMS = ("concurrency", "edits", "fixtures", "history", "optional", "reference", "sessions", "writers")
# Before they are imported: only then does pytest show both sides of a failed assert.
pytest.register_assert_rewrite(*(f"{__name__}.{claims}" for claims in _CLAIMS))
