"""A journal in one SQLite file.

    journal    the contract, in a few lines each
    file       making, opening and refusing files; migrations

    writer     the thread that writes: group commit, and what follows an error
    jobs       what it is asked to do, verbs first
    turns      whose turn it is to write, among processes
    reserve    room for the day the disk is full
    events     what an append writes; beside it effects, fences, leases and extras (text, snapshots)
    heads      where each run stands, remembered as long as nobody else writes; with cover: the fence over it

    reader     the thread that reads; what it is asked is in queries
    lookout    what other processes commit

answers, keys and trouble are small things that several of these need.
"""

from checkrein.journal.sqlite.journal import SqliteJournal

__all__ = ["SqliteJournal"]
