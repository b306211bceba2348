"""The version, read by the package's build as text: nothing may be imported here."""

__version__ = "0.1.0"
DOCUMENT = "costtrace/1"
"""The schema of every JSON document that a command prints."""
