"""Arrays as bytes."""

import numpy as np

from tunerd.core.estimators.codec import pack, unpack


def test_an_array_is_the_same_however_it_lies_in_memory() -> None:
    rows = np.arange(12.0).reshape(3, 4)
    told = {
        "rows": rows,
        "columns": np.asfortranarray(rows),
        "part": rows[:, ::2],
        "turned": rows.T,
    }
    found = unpack(pack(told))
    for name, one in told.items():
        np.testing.assert_array_equal(found[name], one)
