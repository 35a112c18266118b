"""Networks whose layers all lie on one wafer: a rectangle each, joined by data paths; weights never move."""
