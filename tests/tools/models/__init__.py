"""The script that trains the shipped model."""
