"""The hostile world: whole programs in virtual time against a network that an adversary owns."""
