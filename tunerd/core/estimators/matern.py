"""Matérn 5/2: how alike two places are, 1 where they are the same.

Processes ask this of ten thousand places at a time, and little else here takes as long: squared
distances are one product of matrices, and what follows is done in place. Rasmussen and Williams,
Gaussian Processes for Machine Learning, 2006: equation 4.17.
"""

import numpy as np

from tunerd.core.arrays import Array, FloatArray

__all__ = ["matern", "sloped", "squares"]

ROOT5 = float(np.sqrt(5.0))


def squares(A: Array, B: Array) -> Array:
    """(n, d) and (m, d), in units of the lengths → (n, m) squared distances, in the precision of
    both."""
    left, other = np.ones((len(A), 1), A.dtype), np.ones((len(B), 1), B.dtype)
    long = np.concatenate([-2.0 * A, (A**2).sum(axis=1, keepdims=True), left], axis=1)
    tall = np.concatenate([B, other, (B**2).sum(axis=1, keepdims=True)], axis=1)
    product: Array = long @ tall.T
    return np.maximum(product, 0.0, out=product)


def matern(apart: Array) -> Array:
    """Of squared distances, which are overwritten: (1 + √5 r + 5/3 r²) e^(-√5 r)."""
    apart *= 5.0
    r = np.sqrt(apart)
    apart /= 3.0
    apart += r
    apart += 1.0
    apart *= np.exp(np.negative(r, out=r), out=r)
    return apart


def sloped(apart: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The same, and (1 + √5 r) e^(-√5 r): 5/3 of that times the squared distance in a column is
    the derivative by the logarithm of its length."""
    r = ROOT5 * np.sqrt(apart)
    fall = np.exp(-r)
    near = (1.0 + r) * fall
    return near + (5.0 / 3.0) * apart * fall, near
