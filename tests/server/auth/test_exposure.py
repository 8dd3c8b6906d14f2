"""Listening beyond this machine is something one has to ask for in so many words."""

from __future__ import annotations

import pytest

from checkrein.errors import WrongInput
from checkrein.server.auth.policy import Policy, check_exposure, exposure_warning, host_of


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1"])
def test_loopback_needs_nothing(host: str) -> None:
    assert check_exposure(host, token=None) == ()
    assert exposure_warning(host) is None


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "192.0.2.7", "agents.example.com", "10.0.0.1"])
@pytest.mark.parametrize("token", [None, ""])
def test_beyond_loopback_there_is_no_server_without_a_token(host: str, token: str | None) -> None:
    with pytest.raises(WrongInput, match=r"has no token. Listen on 127.0.0.1, or set CHECKREIN_TOKEN") as refused:
        check_exposure(host, token=token, names=["agents.example.com"])

    assert refused.value.code == "exposed"


@pytest.mark.parametrize("host", ["0.0.0.0", "::", ""])
def test_on_every_address_one_says_under_which_name(host: str) -> None:
    with pytest.raises(WrongInput, match="--allow-host"):
        check_exposure(host, token="t")

    assert check_exposure(host, token="t", names=["agents.example.com"]) == ("agents.example.com",)


@pytest.mark.parametrize("host", ["192.0.2.7", "2001:db8::7", "agents.example.com", "127.0.0.9"])
def test_a_server_goes_by_the_address_it_listens_on(host: str) -> None:
    names = check_exposure(host, token="t")

    known = host_of(f"[{host}]:8420" if ":" in host else f"{host}:8420")

    assert known is not None
    assert Policy(hosts=names).hosts.knows(known)


def test_without_tls_one_is_told_what_that_means() -> None:
    assert "without TLS" in str(exposure_warning("0.0.0.0"))
    assert exposure_warning("0.0.0.0", is_secure=True) is None


def test_a_name_that_is_none_is_refused() -> None:
    with pytest.raises(WrongInput):
        check_exposure("127.0.0.1", token=None, names=["http://agents.example.com"])


@pytest.mark.parametrize("proxy", ["everybody", "10.0.0.1/8", "", "*"])
def test_a_proxy_that_is_none_is_refused(proxy: str) -> None:
    with pytest.raises(WrongInput):
        Policy(proxies=[proxy])
