"""A script here trains the language model which is shipped with the project."""
