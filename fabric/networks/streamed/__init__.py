"""Networks can stay on the wafer while their weights stream past: one program, driven by commands."""
