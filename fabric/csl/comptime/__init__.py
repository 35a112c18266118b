"""What the compiler knows and does at compile time."""
