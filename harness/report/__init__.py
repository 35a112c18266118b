"""The report of a run as one HTML page: `facts` says what it holds, `page` puts it together.

`markup` writes HTML, `interactive` the parts to zoom into.
"""
