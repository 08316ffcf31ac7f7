"""The site: `sphinx-build -W -b html docs build/site`, with what the extra `docs` installs; needs no network."""

from __future__ import annotations

import os
import sys
from importlib.metadata import version as _version
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

project = "partax"
author = "the partax contributors"
copyright = "the partax contributors"
release = version = _version("partax")

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "sphinx_design",
    "readable_reference",
]
myst_enable_extensions = ["attrs_block", "attrs_inline", "colon_fence", "deflist"]
myst_heading_anchors = 3
nitpicky = True
nitpick_ignore_regex = [  # what other projects document, and type variables
    ("py:.*", r"(collections\.abc|contextlib|enum|os|pathlib|re)\..*"),
    ("py:.*", r"(flax|jax|jaxlib)\..*"),
    ("py:class", r"Aux|Carry|Class|Operands|P|R|Rule|T|X|Y"),
]
exclude_patterns = ["porting/*.py", "plots.py"]
suppress_warnings: list[str] = []

autodoc_typehints = "signature"
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
napoleon_numpy_docstring = False
napoleon_use_rtype = False
napoleon_use_ivar = True
napoleon_attr_annotations = False  # readable_reference does it
toc_object_entries_show_parents = "hide"
maximum_signature_line_length = 100
python_display_short_literal_types = True

html_theme = "furo"
html_title = f"partax {release}"
html_static_path = ["_static"]
html_css_files = ["partax.css"]
html_show_sphinx = False
# Without the prompts and the output of a session.
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
# A link to edit each page, where the site is built from a repository that is known.
html_theme_options = {}
if _repository := os.environ.get("GITHUB_REPOSITORY"):
    html_theme_options = {
        "source_repository": f"https://github.com/{_repository}/",
        "source_branch": "main",
        "source_directory": "docs/",
    }
html_copy_source = False
