"""A page of one file plays a recorded run back in a browser: `traces.page.write.write_page` makes it.

`traces.page.columns` makes columns of numbers of a trace, `traces.page.packing` texts of the columns; ``model.js``
reads them and answers what is at work in a cycle, ``view.js`` draws it and listens to the reader.
"""
