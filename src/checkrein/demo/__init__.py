"""A demonstration without key or network: a scripted model, real tools, a real data set, and slow enough to stop.

`checkrein demo` plays the agent for a person to interrupt.
"""

from __future__ import annotations

from checkrein.demo.agent import GOAL, GOALS, INSTRUCTIONS, agent

__all__ = ["GOAL", "GOALS", "INSTRUCTIONS", "agent"]
