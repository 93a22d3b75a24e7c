"""What pyproject.toml cannot say: the folder assets/ goes into the wheel as foretoken_assets, beside the packages that are found."""

from setuptools import find_packages, setup

setup(
    packages=[*find_packages(include=["app", "app.*", "engine", "engine.*"]), "foretoken_assets"],
    package_dir={"foretoken_assets": "assets"},
)
