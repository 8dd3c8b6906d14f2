"""Who may see and steer a run over HTTP, and what a request must look like to be heard at all.

`principals` says who somebody is and what they may do; `key_store` is what is asked about tokens, sessions
and one-time codes, which `token_store` keeps in a file and `postgres_keys` in the store; `gate` looks at every request
before the application does; `guard` puts them together. Nothing is imported here: the command
line uses the store of tokens without loading a web framework.
"""
