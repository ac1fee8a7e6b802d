"""The package of this folder, for a `sys.path` that holds the folder itself and not the folder above it."""

from amplifier_context_core.kernel import load_folder

load_folder(__name__, __file__)
