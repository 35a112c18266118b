"""Programs that were measured elsewhere are rebuilt for this fabric: one module per recipe of the calibration."""
