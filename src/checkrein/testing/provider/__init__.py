"""A model provider on this machine, faithful to the wires of OpenAI (chat and Responses), Anthropic and Gemini.

It plays what a scenario says, breaks down where the scenario says so, refuses what the real ones refuse, and keeps a
log by its own clock: when a request came, when each token left, when the client was found to be gone.

    async with Provider([Reply("Hello there.", tokens_per_second=20)]) as provider:
        client = AsyncOpenAI(base_url=provider.openai_url, api_key=provider.key)
        ...
        await provider.until(lambda log: log and log[0].how == "disconnected")
"""

from checkrein.testing.provider.log import Request
from checkrein.testing.provider.scenario import Fault, Reply, Usage, by_turn
from checkrein.testing.provider.server import Provider, ProviderProcess
from checkrein.testing.provider.shell import runs_command

__all__ = ["Provider", "ProviderProcess", "Reply", "Fault", "Usage", "Request", "by_turn", "runs_command"]
