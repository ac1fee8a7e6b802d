"""Parameters of a PostgreSQL URL."""

from __future__ import annotations

import pytest

from amplifier_context_core.errors import ConfigError
from amplifier_context_core.stores import open_store
from amplifier_context_servers.postgres_server.store import PostgresStore

pytestmark = pytest.mark.postgres


class TestUrls:
    @pytest.mark.parametrize(
        "more",
        [
            "schema=",
            f"schema={'x' * 64}",
            "schema=pg_mine",
            "schema=per%25cent",
            "schema=a%00b",
            "schema=a&schema=b",
            "lease_ttl=soon",
            "lease_ttl=0",
            "lease_ttl=nan",
            "pool_size=0",
            "statement_timeout=-1",
            "connect_timeout=never",
            "no_such_parameter=1",
        ],
    )
    def test_parameters_that_cannot_be_are_refused_without_the_password(self, more: str) -> None:
        with pytest.raises(ConfigError) as caught:
            open_store(f"postgresql://some_user:sesame@127.0.0.1/test?{more}")
        assert "sesame" not in str(caught.value)
        assert str(caught.value).startswith("store: ")

    @pytest.mark.parametrize(
        ("more", "hint"),
        [
            ("schmea=mine", "'schmea'; did you mean 'schema'?"),
            ("sslmode=prefer&sslmod=require", "'sslmod'; did you mean 'sslmode'?"),
            (
                "bogus=1",
                "'bogus'; known are schema, lease_ttl, statement_timeout, pool_size and the parameters of libpq",
            ),
        ],
    )
    def test_an_unknown_parameter_is_named_with_the_nearest_known(self, more: str, hint: str) -> None:
        with pytest.raises(ConfigError) as caught:
            open_store(f"postgresql://some_user:sesame@127.0.0.1/test?{more}")
        assert hint in str(caught.value)
        assert "sesame" not in str(caught.value)

    @pytest.mark.parametrize("password", ["@?sesame", "@?sesame=1", "o@p?user=a&sesame=1&x", "@en?connect=1&sesame"])
    def test_a_piece_of_a_password_is_not_taken_for_a_parameter(self, password: str) -> None:
        with pytest.raises(ConfigError) as caught:
            open_store(f"postgresql://some_user:{password}@127.0.0.1/test")
        assert "sesame" not in str(caught.value)

    @pytest.mark.parametrize(
        "more", ["ssl=true", "%75ser=me", "target_session_attrs=any", "sslmode=disable&application_name=x"]
    )
    def test_what_libpq_knows_is_left_to_it(self, more: str) -> None:
        assert isinstance(open_store(f"postgresql://127.0.0.1/test?{more}"), PostgresStore)
