"""Mutants: small wrongs put into the code, one at a time, that the tests have to find."""
