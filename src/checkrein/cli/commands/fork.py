"""`checkrein fork`: a new run from a finished step of another."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from checkrein.cli import options, output
from checkrein.cli.completion import complete_words
from checkrein.cli.lookup import LAST, Beside, find_run, may_be_text, read_words
from checkrein.cli.session import Session, with_session
from checkrein.cli.wording import origin_lines

if TYPE_CHECKING:
    from checkrein.core.events import Origin


@click.command
@click.argument(
    "words",
    metavar="[RUN] [INSTRUCTION]",
    nargs=-1,
    shell_complete=complete_words,
    help="The run, over or not; without one the newest. What is wanted from there on, in quotes.",
)
@click.option(
    "--at",
    metavar="STEP",
    type=options.WholeNumber(1, 2**31),
    required=True,
    help="The number of the last step that is kept; it must be finished.",
)
@options.by
@options.as_json
@options.place
def fork(words: tuple[str, ...], at: int, by: str, as_json: bool, place: options.Place) -> None:
    """Go on otherwise from a finished step of a run, as a new run.

    What was done up to there is taken over and not done again. The run that it is forked from stays as it is, and so
    does what it did: cancelling the fork undoes none of it.
    """

    async def act(session: Session) -> None:
        read = await read_words(session, words, Beside("the instruction", False, may_be_text))
        run = read.run or await find_run(session, LAST)
        made, origin = await session.fork(run, at=at, instruction=read.beside, by=by)
        if as_json:
            output.out_json({"run": made, "forked_from": origin})
            return
        await _say(session, made, origin)

    with_session(place, act)


async def _say(session: Session, made: str, origin: Origin) -> None:
    output.out(made)
    for line in (*origin_lines(origin), *await session.unattended(made)):
        output.note(line)
    output.note(f"Look at it with: {output.command(f'watch {made}')}")
