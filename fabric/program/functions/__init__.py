"""Functions of f32 vectors are made of instructions: exp, log, reciprocal, 1 / sqrt, GELU.

Each function is written once, over the few operations of a calculator.  `Emit` turns them into instructions of a PE
program, `EvaluatedFunctions` does the same roundings with numpy on bit patterns: what a program must give, bit by bit.

==============  ===================================================================================================
exp             e^x = 2^k e^f: 1.5 * 2^17 + 1/2 added to x / ln 2 leaves k, cut off, in the bits of the sum; f = x - k
                ln 2 in two steps; a polynomial of degree 6; half of k goes into the exponent, the other half into a
                factor, so that results overflow and underflow as they should
log             x = 2^k m with m in [0.71, 1.42) by 16-bit operations on the upper halves; a polynomial in m - 1
reciprocal      a guess by subtracting upper halves as integers, three steps of Newton: y = y (2 - x y)
rsqrt           the same with y = y (1.5 - x y^2 / 2)
gelu            x s and its slope, s = 1 / (1 + exp(-2 u)), u = sqrt(2 / pi) (x + 0.044715 x^3): the tanh form
gelu_erf        x (1 + erf(x / sqrt(2))) / 2, and its slope where networks are trained: the exact form
==============  ===================================================================================================

==============  =============  ===================  ===============================================================
function        error, ulp     cycles of n numbers  range
==============  =============  ===================  ===============================================================
exp             1              109 + 16.25 n        all: overflow to infinity, gradual underflow, NaN
log             1.6            120 + 20 n           normal, above zero; infinity and NaN give NaN
reciprocal      2              69 + 8.5 n           2^-125 <= |x| <= 2^125; zero and NaN give NaN
rsqrt           2.2            82 + 13.5 n          2^-126 <= x <= 2^125; NaN
gelu            4e-7, 4e-6     187 + 36.25 n        |x| < 2^30; NaN
gelu_erf        2e-7           201 + 39.5 n         |x| < 2^20; NaN; with its slope 9 operations more, 1e-6
==============  =============  ===================  ===============================================================

Errors of GELU and its slope are absolute, from one on relative.  Cycles are those of a task that does nothing else, n a
multiple of four; otherwise each operation rounds up to whole steps.  f32 multiplications, fused ones, maxima, minima
and shifts make one number a cycle, additions, subtractions and 32-bit moves two, other 16-bit operations four.  Every
operation takes its issue, an instruction per constant and one per DSR that it moves.  A loop of scalar divisions
(``ce.divide``) would take 61 cycles a number for a reciprocal, 112 for a root.

DSRs: two of each file, all loaded once per call and moved by their base addresses from then on.

Sources: the op table (`wse_core.isa`); Cody and Waite, "Software manual for the elementary functions", 1980 (reduction
of arguments); D. Hendrycks and K. Gimpel, "Gaussian error linear units", 2016 (tanh form).  Coefficients: least squares
at Chebyshev points; guesses and first constants of Newton's steps: smallest largest error.  The tests repeat both.
"""

from __future__ import annotations

from fabric.program.functions.emit import Emit
from fabric.program.functions.evaluate import EvaluatedFunctions

__all__ = ["Emit", "EvaluatedFunctions"]
