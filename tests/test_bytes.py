"""Bytes of small programs by hand: fused, scoped and unfused (the rows are in byte_rows.py and byte_rows_nested.py).

Each row is asked of costtrace and of the slow account in brute.py.
"""

from __future__ import annotations

import byte_rows  # noqa: F401
import byte_rows_nested  # noqa: F401
import pytest
from brute import accounts
from byte_case import CASES, A, Case, I

import costtrace


@pytest.mark.parametrize("row", CASES, ids=lambda c: c.name)
def test_bytes_by_hand(row: Case) -> None:
    profile = costtrace.profile(row.fn, *row.args, jit={"donate_argnums": row.donate} if row.donate else None)
    found = {"": profile.total, **profile.scopes()}
    for path, cost in found.items():
        assert cost.bytes_fused <= cost.bytes_scoped <= cost.bytes_unfused, path
    for path, (fused, scoped, unfused) in {"": (row.fused, row.scoped, row.unfused), **row.rows}.items():
        cost = found[path]
        assert (cost.bytes_fused, cost.bytes_scoped) == (fused, scoped), path
        assert unfused is None or cost.bytes_unfused == unfused, path


@pytest.mark.parametrize("row", [c for c in CASES if c.brute], ids=lambda c: c.name)
def test_the_oracle_agrees_with_the_hand(row: Case) -> None:
    found = accounts(row.fn, row.args, row.donate).rows
    for path, (fused, scoped, unfused) in {"": (row.fused, row.scoped, row.unfused), **row.rows}.items():
        account = found[path]
        assert (account.fused, account.scoped) == (fused, scoped), path
        assert unfused is None or account.unfused == unfused, path


def test_weight_bytes_are_the_touched_rows() -> None:
    def fn(p, i, x):
        return p["table"].at[i].get(mode="promise_in_bounds") @ p["out"], x

    params = {"table": A(50, 4), "out": A(4, 6)}
    found = costtrace.profile(fn, params, I(3), A(2))
    assert found.total.weight_bytes == 3 * 16 + 24 * 4
