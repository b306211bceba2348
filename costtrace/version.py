"""The version, read by the package's build as text: nothing may be imported here."""

__version__ = "0.1.0"
