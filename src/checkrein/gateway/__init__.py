"""Programs that know nothing of us: their requests to models become calls of a run."""

from checkrein.gateway.gateway import Gateway

__all__ = ["Gateway"]
