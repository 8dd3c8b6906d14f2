"""The runtime is killed, frozen and cut off from its store; the tools' own log says what that did to the world."""
