"""What the HTTP library calls its failures, in our words. Imported only once there is one."""

from __future__ import annotations

import errno
import ssl
from urllib.parse import urlsplit

import aiohttp

from checkrein.errors import ModelUnavailable

_ENDED = (ssl.SSLEOFError, ssl.SSLZeroReturnError)


def not_reached(error: Exception, who: str, url: str, connect: float, first_byte: float) -> ModelUnavailable:
    """Why there is no response. The sentence holds neither the key nor anything else of the request."""
    host = _host(url)
    if isinstance(error, aiohttp.ClientProxyConnectionError | aiohttp.ClientHttpProxyError):
        return ModelUnavailable(
            f"{who} could not be reached: the proxy that the environment names {_of_proxy(error)}.",
            reason="proxy",
            remedy="Correct HTTPS_PROXY, or name the host in NO_PROXY; then resume.",
        )
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return _untrusted(who, host, error.certificate_error)
    if isinstance(error, aiohttp.ClientSSLError) and not isinstance(error.os_error, _ENDED):
        return ModelUnavailable(
            f"{who} could not be reached: no secure connection to {host} ({_ssl_reason(error.os_error)}).",
            reason="tls",
            may_retry=False,
            remedy="Check that the base URL is right, and that https:// is what this server speaks; then resume.",
        )
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return ModelUnavailable(
            f"{who} could not be reached: there is no address for {host}.",
            reason="dns",
            remedy="Check the base URL and the network; then resume.",
        )
    if isinstance(error, aiohttp.ConnectionTimeoutError):
        return ModelUnavailable(
            f"{who} could not be reached: no connection to {host} within {connect:g} s.", reason="timeout"
        )
    if isinstance(error, TimeoutError):
        return ModelUnavailable(
            f"{who} did not begin to answer within {first_byte:g} s.",
            reason="timeout",
            remedy="Resume to ask again. Where a model needs longer than that, raise the `timeouts` of the model.",
        )
    return _other(error, who, host)


def _other(error: Exception, who: str, host: str) -> ModelUnavailable:
    if isinstance(error, aiohttp.ClientConnectorError):
        if error.os_error.errno == errno.ECONNREFUSED:
            return ModelUnavailable(
                f"{who} could not be reached: nothing listens at {host}.",
                reason="refused",
                remedy="Start the server, or correct the base URL; then resume.",
            )
        return ModelUnavailable(
            f"{who} could not be reached: {error.os_error.strerror or 'no connection'} ({host}).", reason="unreachable"
        )
    if isinstance(error, aiohttp.ClientResponseError):
        return ModelUnavailable(
            f"{who} did not answer in HTTP.", reason="malformed", remedy="Check that the base URL is right."
        )
    if isinstance(error, aiohttp.ClientConnectionError | OSError):
        return ModelUnavailable(f"{who} closed the connection before it answered.", reason="cut")
    return ModelUnavailable(
        f"{who} could not be asked ({type(error).__name__}).",
        reason="unreachable",
        may_retry=False,
        remedy="Check the base URL and the headers that the model was given.",
    )


def _untrusted(who: str, host: str, error: Exception) -> ModelUnavailable:
    why = getattr(error, "verify_message", "") or "it could not be verified"
    return ModelUnavailable(
        f"{who} could not be reached: the certificate of {host} is not trusted ({why}).",
        reason="tls",
        may_retry=False,
        remedy="Check that the base URL is right. If the certificate is your own, set SSL_CERT_FILE to a file with the "
        "certificate of its authority; then start again.",
    )


def _of_proxy(error: Exception) -> str:
    status = getattr(error, "status", 0)
    return f"refused ({status})" if status else "cannot be reached"


def _ssl_reason(error: BaseException) -> str:
    return (getattr(error, "reason", None) or type(error).__name__).lower().replace("_", " ")


def _host(url: str) -> str:
    return urlsplit(url).netloc.rpartition("@")[2]
