"""For setuptools and pip that know no pyproject.toml; all settings are there."""

from setuptools import setup

setup()
