"""The version of Topolog. It is in code because the image has no package metadata; pyproject.toml
has the same value.
"""

VERSION = "0.2.0"
