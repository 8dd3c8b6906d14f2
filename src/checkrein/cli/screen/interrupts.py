"""What Ctrl-C does on the screen: the same as in plain lines."""

from checkrein.cli.interrupts import Interrupts, Press

__all__ = ["Interrupts", "Press"]
