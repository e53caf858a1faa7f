"""Formats of files: written whole or not at all, sealed by a checksum."""
