"""How Sphinx builds the pages (``make docs``). Warnings, such as broken links, are errors there."""

from tunerd import __version__

project = "tunerd"
release = __version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
html_theme = "furo"
html_title = f"tunerd {release}"
myst_heading_anchors = 4
autodoc_member_order = "bysource"
autodoc_typehints = "description"
suppress_warnings = ["misc.highlighting_failure"]  # tables in CSV have no colours
