"""Secrets are taken out of every value before the program, a tool or the model sees it, and so before it is recorded.

`environment` says which variables hold secrets, `known` in which forms a known string may be written, `shapes` what
the keys of well-known services look like. `reading` finds them in a text that comes in pieces; `redaction` is what
everybody else uses.
"""

from checkrein.runtime.secrets.redaction import OFF, Secrets, SecretsGiven, Stream
from checkrein.runtime.secrets.shapes import WELL_KNOWN, Shape

__all__ = ["OFF", "WELL_KNOWN", "Secrets", "SecretsGiven", "Shape", "Stream"]
