"""What pyproject.toml leaves open: the generated modules and what they run with (backend.py)."""

from setuptools import setup

from backend import BuildPy, Sdist, modules, requirements

setup(cmdclass={"build_py": BuildPy, "sdist": Sdist}, install_requires=requirements(modules()))
