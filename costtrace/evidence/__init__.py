"""Witnesses beside the traced count: each gives numbers for the same program from another source."""
