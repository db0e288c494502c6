"""The version of Topolog, in code, because the image holds the code and no package's metadata.
pyproject.toml says the same.
"""

VERSION = "0.1.0"
