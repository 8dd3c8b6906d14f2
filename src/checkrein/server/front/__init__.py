"""The processes of a server: a front that takes verbs and never imports an agent's code, and drivers that do.

`front` puts it together; `slots` keeps the driver processes alive; `sentry` ends one that stands between a person and a
stop; `driving` is the driver's side; `wire` is how they talk.
"""
