"""The processes of a server: a front that takes verbs and never imports an agent's code, and drivers that do.

`front` puts it together; `drivers` keeps the driver processes alive; `driver_main` and `driver_link` are the driver's
side; `protocol` is how they talk. A driver that does not answer a stop is ended by its supervisor, not from here.
"""
