"""What tests of agents need and a runtime does not: stand-ins that behave like the real thing, on real sockets."""
