"""`checkrein evidence`, `verify` and `heads`: what a run did and who stopped it, in a form that stands up elsewhere."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from checkrein.cli import options, output
from checkrein.cli.lookup import find_run
from checkrein.cli.session import StoreSession, with_store
from checkrein.errors import WrongInput

if TYPE_CHECKING:
    from checkrein.control.evidence.keys import SigningKey

INIT = "init"


def key_folder(store: str) -> Path:
    """Where the signing key of a store lies: with what else only its servers and operators may read."""
    from checkrein.server.auth.token_store import access_folder

    return access_folder(store)


def own_key(store: str) -> SigningKey | None:
    from checkrein.control.evidence.keys import signing_key

    return signing_key(key_folder(store))


_output = click.option(
    "-o", "--output", "file", metavar="FILE", type=click.Path(dir_okay=False, path_type=Path), help="Where to write it."
)


@click.command
@click.argument("run", metavar="RUN", help="The run, or `init` to make the key that signs.")
@_output
@click.option("--with-withheld", is_flag=True, help="With the text that watchers kept from being shown.")
@click.option("--rotate", is_flag=True, help="With `init`: replace the key; what the old one signed still verifies.")
@options.by
@options.as_json
@options.store
def evidence(
    run: str, file: Path | None, with_withheld: bool, rotate: bool, by: str, as_json: bool, store: str
) -> None:
    """Write what a run did and who stopped it as a bundle that verifies itself.

    One zip file: the record as it is stored, the text that was shown, every stop with who, why and both clocks,
    receipts, signed heads, and story.html, which anybody can read. `checkrein evidence init` makes the key that signs,
    or it is given in CHECKREIN_SIGNING_KEY; without one the bundle is not signed, and says so.
    """
    if run == INIT:
        _init(store, rotate, as_json)
        return
    if rotate:
        raise WrongInput("--rotate goes with `checkrein evidence init`.", code="usage")
    if file is None:
        raise WrongInput("Say where to write the bundle: -o FILE.", code="usage")
    from checkrein.control.evidence.bundle import gather, pack
    from checkrein.control.evidence.signer import Signer

    key = own_key(store)

    async def act(session: StoreSession) -> tuple[str, bytes]:
        name = await find_run(session, run)
        if key is not None:
            await Signer(session.journal, key, time.time).sign()
        contents = await gather(session.journal, name, with_withheld=with_withheld)
        store_at = session.journal.now()
        return name, pack(contents, key=key, made_by=by, at=time.time(), store_at=store_at)

    name, data = with_store(store, act)
    _write(file, data)
    signed_by = None if key is None else key.fingerprint
    if as_json:
        output.out_json({"run": name, "file": str(file), "bytes": len(data), "signed_by": signed_by})
        return
    output.out(f"Evidence of run {name} is in {file} ({len(data):,} bytes).")
    if key is None:
        output.note("It is not signed: there is no signing key here. `checkrein evidence init` makes one.")
    else:
        output.out(f"Signed by {key.fingerprint}. Check it with: checkrein verify {file}")


def _init(store: str, rotate: bool, as_json: bool) -> None:
    from checkrein.control.evidence import keys
    from checkrein.server.auth.private_files import make_private_folder

    folder = key_folder(store)
    make_private_folder(folder)
    key = keys.make_key(folder, rotate=rotate)
    public, secret = folder / keys.KEYS_FILE, folder / keys.KEY_FILE
    if as_json:
        output.out_json({"fingerprint": key.fingerprint, "key": str(secret), "keys": str(public)})
        return
    output.out(f"The signing key is in {secret}, for nobody but you to read. Its fingerprint: {key.fingerprint}")
    output.out(f"Give the fingerprint, or {public}, to those who verify; keep the key off machines that drive runs.")


def _write(file: Path, data: bytes) -> None:
    """Whole or not at all, and for nobody else: it holds what people and agents said."""
    draft = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as written:
            written.write(data)
            written.flush()
            os.fsync(written.fileno())
        os.replace(draft, file)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise WrongInput(f"{file} could not be written ({error.strerror}).", code="not_written") from error


@click.command
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path), help="The bundle.")
@click.option(
    "--key",
    "keys",
    metavar="KEY",
    multiple=True,
    help="Whom you believe: a fingerprint (SHA256:…), a public key (ed25519:…) or a file of such; may be given often.",
)
@click.option(
    "--heads",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="A file that `checkrein heads` wrote: the run must agree with what was signed then.",
)
@options.as_json
@options.store
def verify(file: Path, keys: tuple[str, ...], heads: Path | None, as_json: bool, store: str) -> int:
    """Say whether a bundle of evidence is whole, and who has signed it.

    Needs nothing but the file: no store, no server, no network. Without --key the keys of this project are believed.
    Exit code: 0 whole and signed by a known key; 5 broken; 6 whole, but not signed or by an unknown key; 2 not a
    bundle.
    """
    from checkrein.control.evidence.keys import known_keys
    from checkrein.control.evidence.verify import verify as look_through

    known = known_keys(keys, key_folder(store))
    finding = look_through(_read(file), known, None if heads is None else _read(heads))
    if as_json:
        output.out_json(finding)
        return finding.code
    for part in finding.parts:
        output.out(f"{part.name:<15} whole: {part.says}")
    for stop in finding.stops:
        output.out(f"{'stop':<15} {stop}")
    (output.out if finding.code == 0 else output.note)(finding.sentence)
    return finding.code


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise WrongInput(f"{file} could not be read ({error.strerror}).", code="not_read") from error


@click.command
@_output
@click.option(
    "--after", metavar="N", type=options.WholeNumber(0, 10**15), default=0, help="Only what came after entry N."
)
@options.as_json
@options.store
def heads(file: Path | None, after: int, as_json: bool, store: str) -> None:
    """Write what was signed so far, to be published or kept elsewhere.

    One JSON object a line: the head of a run at each stop, and once a minute the heads of all that has changed. Kept
    where nobody who could change the store can reach, it shows later whether a journal was changed or cut off. With a
    signing key here, what has changed is signed first.
    """
    import msgspec

    from checkrein.control.evidence.log import published
    from checkrein.control.evidence.signer import Signer

    key = own_key(store)

    async def act(session: StoreSession) -> list[bytes]:
        if key is not None:
            await Signer(session.journal, key, time.time).sign()
        return [msgspec.json.encode(published(one)) for one in await session.journal.evidence.signed(after=after)]

    lines = with_store(store, act)
    data = b"".join(line + b"\n" for line in lines)
    if file is None:
        sys.stdout.write(data.decode())
        return
    _write(file, data)
    if as_json:
        output.out_json({"file": str(file), "statements": len(lines)})
    else:
        output.out(f"{len(lines)} signed statements are in {file}.")
