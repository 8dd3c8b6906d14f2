"""`python -m tests.real_agents.install`: installs the agents that are missing, one by one, each in its folder."""

from __future__ import annotations

import shutil
import subprocess
import sys

from tests.real_agents.programs import Agent, chosen

INSTALL_SECONDS = 1800


def install(agent: Agent) -> str:
    """Install it; in a word, what came of it."""
    packages = "\n".join((*agent.npm, *agent.pypi))
    stamp = agent.folder / ".installed"
    if stamp.exists() and stamp.read_text() == packages:
        return "is there"
    npm = shutil.which("npm")
    if agent.npm and npm is None:
        return "is left out: there is no npm here"
    shutil.rmtree(agent.folder, ignore_errors=True)
    agent.folder.mkdir(parents=True)
    if agent.npm:
        commands = [[str(npm), "install", "--prefix", ".", "--no-audit", "--no-fund", "--loglevel=error", *agent.npm]]
    else:
        pip = ["bin/python", "-m", "pip", "install", "-qq", "--disable-pip-version-check"]
        commands = [[sys.executable, "-m", "venv", "."], [*pip, *agent.pypi]]
    for command in commands:
        done = subprocess.run(command, cwd=agent.folder, capture_output=True, text=True, timeout=INSTALL_SECONDS)
        if done.returncode:
            return f"is left out: {done.stderr.strip()[-300:]}"
    stamp.write_text(packages)
    return "is installed"


def main() -> None:
    for agent in chosen():
        print(f"{agent.name} ({', '.join((*agent.npm, *agent.pypi))}, {agent.megabytes} MB) …", flush=True)
        print(f"    {install(agent)}", flush=True)


if __name__ == "__main__":
    main()
