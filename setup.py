"""Puts the folder assets/ into the wheel as the package foretoken_assets, which pyproject.toml cannot express."""

from setuptools import find_packages, setup

setup(
    packages=[*find_packages(include=["app", "app.*", "engine", "engine.*"]), "foretoken_assets"],
    package_dir={"foretoken_assets": "assets"},
)
