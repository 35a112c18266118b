"""The package `wse_core` has one processing element: its types, numerics, op table, memory, tasks, queues, router and
compute element.

Import the parts by name, for example ``from wse_core import params`` or ``from wse_core.errors import ConfigError``;
importing the package itself loads nothing, so that light tools stay light.
"""

__version__ = "0.2.0"
