"""A test of "not better than" that stays valid however often one looks.

Bets are laid against the claim that a difference is not above zero; who bets against something
true does not get rich: with probability 1 − α the capital never reaches 1/α at any time (Ville's
inequality), so that one may look after every job and stop when one likes. The capital is the mean
over a few fixed bets λ of Π exp(λ·min(z, c) − ψ(λ)), where z is a difference in standard
deviations and ψ(λ) = (e^{λc} − 1 − λc) / c² (Bennett): a supermartingale for *any* distribution of
mean at most zero and variance at most one. A lucky outlier counts as ``c`` deviations, an unlucky
one in full.
"""

import math

__all__ = ["BETS", "CAP", "counted", "log_odds", "raised", "start"]

CAP = 4.0
"""Standard deviations beyond which luck does not count."""
BETS = (0.1, 0.2, 0.4, 0.7)
"""What suits differences of 0.1, 0.3, 1 and 4 standard deviations a step."""
_PSI = tuple((math.expm1(bet * CAP) - bet * CAP) / CAP**2 for bet in BETS)

RARE = 0.1
"""Probability up to which an event is rare."""
OFTEN = 0.35
"""Probability that is betted on."""


def start() -> list[float]:
    """Logarithms of the capital of each bet before anything came."""
    return [0.0] * len(BETS)


def raised(logs: list[float], z: float) -> list[float]:
    """The capital after a difference of ``z`` standard deviations."""
    z = min(z, CAP)
    return [log + bet * z - psi for log, bet, psi in zip(logs, BETS, _PSI, strict=True)]


def log_odds(logs: list[float]) -> float:
    """Logarithm of all capital together; above log(1/α) the claim is rejected at level α."""
    most = max(logs)
    return most + math.log(sum(math.exp(log - most) for log in logs) / len(logs))


def counted(log: float, *, happened: bool) -> float:
    """Logarithm of the capital of who bets that something happens often, against the claim that it
    is rare; 0.0 before anything came. A few times are enough, where the mean of differences needs
    dozens."""
    return log + math.log(OFTEN / RARE if happened else (1.0 - OFTEN) / (1.0 - RARE))
