"""Programs and routes on a rectangle of PEs, validated to a `wse_core.image.FabricSpec`."""
