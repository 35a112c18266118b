"""Published programs are set against this model: what somebody else measured, rebuilt and run here.

===========  =============================================================================================
points       what was published: parameters, cycles and source of each measurement (``calibration.json``)
recipe       what a recipe is: a function from a point to cycles on the fabric
programs     the recipes, a module per published program or library
registry     all recipes by name and kind
compare      runs recipes, compares with the points, judges and tabulates
===========  =============================================================================================

Nothing of the product imports this package; `wse validate`, tests, and the one published figure that shows a published
program (`harness.figures.vendor_summa`) do.
"""
