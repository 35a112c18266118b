"""From one mesh to another: a prompt is read on one, decoding goes on with its keys and values on the other."""
