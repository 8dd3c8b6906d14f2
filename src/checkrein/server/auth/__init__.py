"""Who may see and steer a run over HTTP, and what a request must look like to be heard at all.

`principals` says who somebody is and what they may do; `keys` keeps tokens, sessions and one-time codes; `gate` looks
at every request before the application does; `guard` puts them together. Nothing is imported here: the command line
uses the keys without loading a web framework.
"""
