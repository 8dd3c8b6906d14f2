"""`checkrein completion`: what a shell must read to complete commands, runs and the names of agents."""

from __future__ import annotations

import sys

import click

from checkrein.cli.completion import SHELLS, source


@click.command
@click.argument("shell", metavar="SHELL", type=click.Choice(SHELLS), help="bash, zsh or fish.")
def completion(shell: str) -> None:
    """Print what a shell must read to complete commands, runs and agents.

    For bash: eval "$(checkrein completion bash)", in ~/.bashrc. For zsh the same in ~/.zshrc. For fish: checkrein
    completion fish > ~/.config/fish/completions/checkrein.fish.
    """
    print(source(shell), file=sys.stdout, flush=True)
