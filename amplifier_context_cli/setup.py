"""Build in a temporary folder. setuptools builds in the package's own, and packs what an earlier build left there."""

import atexit
import shutil
import tempfile

from setuptools import setup

scratch = tempfile.mkdtemp(prefix="amplifier-context-build-")
atexit.register(shutil.rmtree, scratch, ignore_errors=True)
setup(
    script_name="setup.py",  # by this name setuptools knows the file, and leaves it out of the wheel
    options={"build": {"build_base": scratch}, "egg_info": {"egg_base": scratch}},
)
