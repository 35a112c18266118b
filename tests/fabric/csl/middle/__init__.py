"""Tests of the compiler between the typed tree and instructions: the intermediate form goes in and comes out."""
