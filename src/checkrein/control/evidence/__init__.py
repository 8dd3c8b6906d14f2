"""Evidence of what a run did and who stopped it: bundles that verify without us, and what is signed meanwhile.

archive   a zip file of which every byte is determined by what is in it
keys      Ed25519: where the key is, which keys are known
log       signed statements, chained, one log a store; Merkle roots
bundle    one run as parts with a manifest
story     the same as a page that anybody can read
verify    what a bundle says, and whether it can be believed
signer    signs what happens, while it happens
retention what is deleted, and what is left of it
"""
