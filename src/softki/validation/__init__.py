"""Checks of parameters and of data, each written once, with errors that say what to do."""
