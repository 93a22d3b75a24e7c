"""Puts assets/ and docs/bench/ into the wheel as packages, foretoken_assets and foretoken_bench, which pyproject.toml cannot express."""

from setuptools import find_packages, setup

setup(
    packages=[
        *find_packages(include=["app", "app.*", "engine", "engine.*", "research", "research.*"]),
        "foretoken_assets",
        "foretoken_bench",
    ],
    package_dir={"foretoken_assets": "assets", "foretoken_bench": "docs/bench"},
)
