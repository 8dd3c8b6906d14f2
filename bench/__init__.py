"""How fast Checkrein is, measured against doing without it.

`make bench` runs everything; `python -m bench --list` says what there is. Every benchmark has its module, with what it
measures and the target it should meet. Where two things are compared they take turns within one run and on one disk, so
that whatever else the machine is doing hits both alike: trust the ratios, not the microseconds.
"""
