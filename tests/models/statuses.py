"""What the statuses of providers mean: the type of the error, and whether to try again."""

from __future__ import annotations

from typing import Final

from checkrein import errors

STATUSES: Final[dict[int, tuple[type[errors.ModelError], bool]]] = {
    307: (errors.ModelNotFound, False),
    400: (errors.ModelRefusedRequest, False),
    401: (errors.ModelUnauthorised, False),
    402: (errors.ModelRateLimited, False),
    403: (errors.ModelUnauthorised, False),
    404: (errors.ModelNotFound, False),
    408: (errors.ModelUnavailable, True),
    409: (errors.ModelUnavailable, True),
    413: (errors.ModelContextExceeded, False),
    422: (errors.ModelRefusedRequest, False),
    429: (errors.ModelRateLimited, True),
    500: (errors.ModelUnavailable, True),
    502: (errors.ModelUnavailable, True),
    503: (errors.ModelUnavailable, True),
    504: (errors.ModelUnavailable, True),
    529: (errors.ModelUnavailable, True),
}
