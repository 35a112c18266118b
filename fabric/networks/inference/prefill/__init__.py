"""A prompt read at once: all its tokens go through each layer together, on the weights that decoding uses."""
