"""The key that signs evidence, and the keys that are known when it is verified.

The secret half is in a file of its own that only its owner reads, or in `CHECKREIN_SIGNING_KEY`. It belongs on fronts
and on operators' machines, never on a worker, which runs the code of authors. Beside the file lies a list of the public
halves, the newest last: a rotation adds one and forgets none, so that what was signed before can still be verified.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
import stat
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from checkrein.errors import WrongInput

VARIABLE: Final = "CHECKREIN_SIGNING_KEY"
KEY_FILE: Final = "signing.key"
KEYS_FILE: Final = "signing.pub"
_SECRET: Final = "checkrein-signing-key:"
_PUBLIC: Final = "ed25519:"
_BYTES: Final = 32


def fingerprint(public: bytes) -> str:
    """How people name a public key."""
    return f"SHA256:{hashlib.sha256(public).hexdigest()[:32]}"


class SigningKey:
    """An Ed25519 key with its secret half, which is never shown."""

    def __init__(self, seed: bytes) -> None:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        self._seed = seed
        self._key = Ed25519PrivateKey.from_private_bytes(seed)
        self.public: bytes = self._key.public_key().public_bytes_raw()

    @property
    def fingerprint(self) -> str:
        return fingerprint(self.public)

    def sign(self, what: bytes) -> bytes:
        return self._key.sign(what)

    def text(self) -> str:
        """The secret, as it stands in its file."""
        return _SECRET + base64.b64encode(self._seed).decode()

    def __repr__(self) -> str:
        return f"SigningKey({self.fingerprint})"


def is_signed(what: bytes, signature: bytes, public: bytes) -> bool:
    """Whether the owner of `public` has signed `what`."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, what)
    except (InvalidSignature, ValueError):
        return False
    return True


# -- the secret


def signing_key(folder: Path, environment: Mapping[str, str] = os.environ) -> SigningKey | None:
    """The key of this machine, if it has one: that of the environment, or that in `folder`.

    Raises `WrongInput` for one that cannot be one, and for a file that others may read: what is signed with that proves
    nothing.
    """
    if VARIABLE in environment:
        return _parsed(environment[VARIABLE], f"What {VARIABLE} says")
    path = folder / KEY_FILE
    try:
        found = path.stat()
        text = path.read_text("ascii", "replace")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise WrongInput(
            f"The signing key {path} could not be read ({error.strerror}).", code="signing_key_refused"
        ) from error
    if stat.S_IMODE(found.st_mode) & 0o077:
        raise WrongInput(
            f"The signing key {path} may be read by others. Make a new one with `checkrein evidence init --rotate`; "
            f"`chmod 600 {path}` is enough only if nobody has read it.",
            code="signing_key_refused",
        )
    return _parsed(text, f"The file {path}")


def _parsed(text: str, what: str) -> SigningKey:
    encoded = text.strip().removeprefix(_SECRET)
    try:
        seed = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        seed = b""
    if len(seed) != _BYTES or not text.strip().startswith(_SECRET):
        raise WrongInput(
            f"{what} is not a signing key; `checkrein evidence init` makes one.", code="signing_key_refused"
        )
    return SigningKey(seed)


def make_key(folder: Path, *, rotate: bool = False) -> SigningKey:
    """Make a key and keep both halves in `folder`. Raises `WrongInput` where there is one and `rotate` is not said."""
    path = folder / KEY_FILE
    if path.exists() and not rotate:
        raise WrongInput(
            f"There is a signing key already ({path}). `--rotate` replaces it; what it has signed can still be "
            f"verified with {folder / KEYS_FILE}.",
            code="signing_key_exists",
        )
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    key = SigningKey(os.urandom(_BYTES))
    # The public half first: nothing must ever be signed by a key that nobody can look up.
    with open(folder / KEYS_FILE, "a", encoding="ascii") as keys:
        moment = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        keys.write(f"{_PUBLIC}{base64.b64encode(key.public).decode()} {key.fingerprint} {moment}\n")
        keys.flush()
        os.fsync(keys.fileno())
    draft = path.with_suffix(".new")
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with open(handle, "w", encoding="ascii") as file:
        os.fchmod(handle, 0o600)
        file.write(key.text() + "\n")
        file.flush()
        os.fsync(handle)
    os.replace(draft, path)
    return key


# -- the known keys


class KnownKeys:
    """Whom a verifier believes: public keys, or fingerprints of such."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._fingerprints = frozenset(names)

    def has(self, public: bytes) -> bool:
        return fingerprint(public) in self._fingerprints

    def __bool__(self) -> bool:
        return bool(self._fingerprints)


def known_keys(given: Iterable[str], folder: Path) -> KnownKeys:
    """The keys that are `given`, each a file of them, a public key or a fingerprint; without any, those in `folder`.

    Raises `WrongInput` for what is none of these.
    """
    names: set[str] = set()
    for one in given or ([str(folder / KEYS_FILE)] if (folder / KEYS_FILE).exists() else []):
        if one.startswith("SHA256:") and len(one) == len(fingerprint(b"")):
            names.add(one)
        elif one.startswith(_PUBLIC):
            names.add(_public(one))
        else:
            names |= _in_file(Path(one))
    return KnownKeys(names)


def _in_file(path: Path) -> set[str]:
    try:
        lines = path.read_text("ascii", "replace").splitlines()
    except OSError as error:
        raise WrongInput(
            f"{path} is neither a key nor a file of keys ({error.strerror}); give a fingerprint (SHA256:…), a public "
            f"key ({_PUBLIC}…) or a file such as {KEYS_FILE}.",
            code="signing_key_refused",
        ) from error
    return {_public(line.split()[0]) for line in lines if line.strip() and not line.startswith("#")}


def _public(text: str) -> str:
    try:
        public = base64.b64decode(text.removeprefix(_PUBLIC), validate=True)
    except (binascii.Error, ValueError):
        public = b""
    if len(public) != _BYTES or not text.startswith(_PUBLIC):
        raise WrongInput(f"{text!r} is not a public key; one looks like {_PUBLIC}…", code="signing_key_refused")
    return fingerprint(public)
