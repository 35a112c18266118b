"""Everything between processing elements: links, the mesh, layouts, programs, host access and kernels.

Importing the package itself loads no compiled module; import the parts by name, for example
``from fabric.kernels import registry``.
"""
