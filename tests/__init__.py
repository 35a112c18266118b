"""Tests; the directories mirror those of the packages."""
