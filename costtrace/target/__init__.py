"""Asking a chip's own compiler, without the chip: what to send, where it runs, and how to read what comes back."""
