"""Tokens from the command line: real processes on real files, with a server's view of the same keys beside them."""

from __future__ import annotations

import stat
import time
from pathlib import Path

import pytest

from checkrein.cli.commands.operate.token import expiry
from checkrein.errors import WrongInput
from checkrein.server.auth.principals import Role
from checkrein.server.auth.token_store import OPERATOR, Keys
from tests.cli.shell import SAMPLE, Shell

FOLDER = Path(".checkrein") / "runs.db.access"


def keys_of(shell: Shell) -> Keys:
    return Keys(shell.folder / FOLDER)


def test_a_token_is_printed_once_and_lets_its_owner_in(shell: Shell) -> None:
    made = shell.do("token", "create", "--role", "controller", "--owner", "ann", "--expires", "12h", "--name", "phone")

    assert made.code == 0, made.err
    assert len(made.lines) == 1
    assert "controller of ann's runs, until 20" in made.err
    assert made.lines[0] not in made.err
    with_keys = keys_of(shell)
    found = with_keys.find(made.lines[0])
    assert found is not None
    assert (found.role, found.owner, found.name, found.run) == (Role.CONTROLLER, "ann", "phone", None)
    assert found.expires_at == pytest.approx(time.time() + 12 * 3600, abs=120)
    with_keys.close()
    assert made.lines[0] not in shell.do("token", "list").out
    for path in (shell.folder / FOLDER).rglob("*"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert made.lines[0].encode() not in path.read_bytes()


def test_a_token_ends_after_ninety_days_unless_it_is_said_otherwise(shell: Shell) -> None:
    made = shell.do("token", "create", "--role", "operator", "--json").json[0]
    lasting = shell.do("token", "create", "--role", "operator", "--expires", "never", "--json").json[0]

    assert made["expires_at"] == pytest.approx(time.time() + 90 * 86400, abs=120)
    assert lasting["expires_at"] is None
    assert made["token"].startswith("ckr_")


def test_revoking_is_heeded_at_once_by_a_server_that_has_the_keys_open(shell: Shell) -> None:
    """P7"""
    made = shell.do("token", "create", "--role", "viewer", "--owner", "ann", "--json").json[0]
    server = keys_of(shell)
    found = server.find(made["token"])
    assert found is not None

    revoked = shell.do("token", "revoke", made["id"][:8])

    assert revoked.code == 0, revoked.err
    assert revoked.out.startswith(f"Revoked {made['id']} (viewer of ann's runs).")
    assert server.find(made["token"]) is None
    assert not server.is_valid(found.key)
    server.close()
    assert shell.do("token", "list").out == ""
    assert "revoked 20" in shell.do("token", "list", "--all").out
    assert "had ended already" in shell.do("token", "revoke", made["id"]).out


def test_the_list_says_whose_tokens_there_are_and_never_the_tokens(shell: Shell) -> None:
    secret = shell.do("token", "create", "--role", "controller", "--owner", "ann\x1b[31m").lines[0]
    shell.do("token", "create", "--role", "operator", "--name", "ops")

    plain, as_json = shell.do("token", "list"), shell.do("token", "list", "--json")

    assert plain.lines[0].split() == ["TOKEN", "NAME", "ROLE", "OWNER", "RUN", "UNTIL", "LAST", "USED", "ORIGINS"]
    assert "\x1b" not in plain.out
    assert {token["role"] for token in as_json.json} == {"controller", "operator"}
    assert secret not in plain.out + as_json.out
    assert "hash" not in as_json.out


def test_a_token_for_one_run_belongs_to_the_owner_of_that_run(shell: Shell) -> None:
    assert shell.do("run", str(SAMPLE), "Do it.", "--agent", "quick").code == 0

    made = shell.do(
        "token", "create", "--role", "controller", "--run", "last", "--origin", "https://App.example.com:443/", "--json"
    )

    assert made.code == 0, made.err
    assert made.json[0]["run"].startswith("r-")
    assert made.json[0]["origins"] == ["https://app.example.com"]
    other = shell.do("token", "create", "--role", "viewer", "--run", "last", "--owner", "bob")
    assert (other.code, "error[token_scope]" in other.err) == (2, True)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--role", "viewer"], "token_scope"),
        (["--role", "controller"], "token_scope"),
        (["--role", "admin"], "usage"),
        ([], "usage"),
        (["--role", "operator", "--expires", "soon"], "token_expiry"),
        (["--role", "operator", "--expires", "2001-01-01"], "token_expiry"),
        (["--role", "operator", "--expires", "0d"], "token_expiry"),
        (["--role", "operator", "--run", "r-1"], "token_scope"),
        (["--role", "viewer", "--owner", "a", "--origin", "https://a.example"], "token_scope"),
        (["--role", "viewer", "--run", "r-1", "--origin", "*"], "origin_name"),
        (["--role", "viewer", "--run", "r-1"], "store_not_found"),
        (["--role", "operator", "--store", "memory:"], "store_not_found"),
    ],
)
def test_a_token_that_cannot_be_meant_is_refused_in_a_sentence(shell: Shell, arguments: list[str], code: str) -> None:
    refused = shell.do("token", "create", *arguments)

    assert (refused.code, refused.out) == (2, "")
    assert refused.err.startswith(f"error[{code}]: ")
    assert not (shell.folder / FOLDER).exists()


def test_what_there_is_not_cannot_be_revoked(shell: Shell) -> None:
    assert shell.do("token", "revoke", "t-1").err.startswith("error[no_tokens]: ")
    shell.do("token", "create", "--role", "operator")

    for wrong in ("t-zzz", "t-", "", "nobody"):
        assert shell.do("token", "revoke", wrong).err.startswith("error[token_not_found]: ")
    assert len(shell.do("token", "list").lines) == 2


def test_keys_that_others_may_read_are_not_used(shell: Shell) -> None:
    shell.do("token", "create", "--role", "operator")
    (shell.folder / FOLDER / "keys.db").chmod(0o644)

    refused = shell.do("token", "list")

    assert refused.code == 2
    assert refused.err.startswith("error[not_private]: ")
    assert "chmod 600" in refused.err


def test_a_link_lets_a_browser_in_once_as_the_server_knows_it(shell: Shell) -> None:
    printed = shell.do("token", "link", "--address", "http://127.0.0.1:9000/")

    address, _, code = printed.lines[0].partition("/enter?code=")

    assert address == "http://127.0.0.1:9000"
    server = keys_of(shell)
    server.trust((shell.folder / FOLDER / "server-token").read_text().strip(), OPERATOR)
    assert server.redeem(code) is not None
    assert server.redeem(code) is None
    server.close()


def test_when_a_token_expires_can_be_said_in_several_ways() -> None:
    now = 1_800_000_000.0

    assert expiry("30m", now=now) == now + 1800
    assert expiry("4w", now=now) == now + 28 * 86400
    assert expiry("never", now=now) is None
    assert expiry("2030-01-01T00:00:00+00:00", now=now) == 1893456000.0
    for wrong in ("", "-1d", "1.5h", "1y", "d", "1 d", "999999999999d", "2027-13-01"):
        with pytest.raises(WrongInput):
            expiry(wrong, now=now)
