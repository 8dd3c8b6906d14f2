"""Secrets are taken out of every value before the program, a tool or the model sees it, and so before it is recorded.

`known` says which variables hold secrets and in which forms a known string may be written, `shapes` what the keys of
well-known services look like. `stream` finds them in a text that comes in pieces; `redactor` is what everybody else
uses.
"""

from checkrein.secrets.redactor import OFF, Secrets, SecretsGiven, Stream
from checkrein.secrets.shapes import WELL_KNOWN, Shape

__all__ = ["OFF", "WELL_KNOWN", "Secrets", "SecretsGiven", "Shape", "Stream"]
