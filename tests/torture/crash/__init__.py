"""The crash proof: nothing acknowledged is lost (promise P5), with a witness that the journal does not write."""
