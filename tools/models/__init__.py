"""The script that trains the language model which is shipped with the project."""
