"""Agents that were built with another framework: `interruptible(their_agent)`, a module for each framework."""
