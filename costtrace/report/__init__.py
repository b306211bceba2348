"""Profiles -> a document (plain data) -> tables -> text. Formats nothing that it has not put in the document first."""
