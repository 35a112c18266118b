"""Collectives: broadcast, reduce, all-reduce, scatter, gather, along lines and over rectangles."""
