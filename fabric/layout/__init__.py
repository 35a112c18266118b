"""Programs and routes lie on a rectangle of PEs and are validated to a `wse_core.image.FabricSpec`."""
