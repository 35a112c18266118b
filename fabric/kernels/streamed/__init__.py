"""Products whose weights stream past: forward pass, gradient, layout of activations."""
