"""Programs that were measured elsewhere, rebuilt for this fabric: one module per recipe of the calibration."""
