"""These scripts make files of the project: pages, pictures, the stub of `Program`, the shipped model.

They run in a checkout, from its directory, and are not installed.
"""
