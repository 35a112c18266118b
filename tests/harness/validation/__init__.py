"""Recipes: published programs rebuilt; cycles against published ones and results against numpy."""
