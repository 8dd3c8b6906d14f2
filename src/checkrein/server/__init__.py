"""Control over HTTP: the API, the event streams and the page. Nothing in here runs an agent's code."""
