"""cofuse: fuse and restore multi-focus stacks with a learned cosparse analysis operator.

Names are loaded when first used, so that ``import cofuse`` stays cheap.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cofuse.alignment import Alignment, align_stack, aligned
    from cofuse.depth import Depth, estimate_depth
    from cofuse.errors import CofuseError
    from cofuse.evaluation.simulation import Simulation, simulate_stack
    from cofuse.files import Metadata, read_image, read_metadata, read_stack, write_image
    from cofuse.fusion import PRESETS, AutoSettings, FastSettings, PaperSettings, fuse
    from cofuse.images import Fusion, Stack
    from cofuse.jobs.outputs import Outcome
    from cofuse.jobs.run import fuse_files
    from cofuse.learning import (
        LearnedOperator,
        LearningSettings,
        learn_operator,
        sample_patches,
    )
    from cofuse.operators import AnalysisOperator, load_operator
    from cofuse.progress import Progress, SolverTrace
    from cofuse.sensor import NoiseLaw, estimate_noise

__version__ = "0.1.0"

__all__ = [
    "PRESETS",
    "Alignment",
    "AnalysisOperator",
    "AutoSettings",
    "CofuseError",
    "Depth",
    "FastSettings",
    "Fusion",
    "LearnedOperator",
    "LearningSettings",
    "Metadata",
    "NoiseLaw",
    "Outcome",
    "PaperSettings",
    "Progress",
    "Simulation",
    "SolverTrace",
    "Stack",
    "__version__",
    "align_stack",
    "aligned",
    "estimate_depth",
    "estimate_noise",
    "fuse",
    "fuse_files",
    "learn_operator",
    "load_operator",
    "read_image",
    "read_metadata",
    "read_stack",
    "sample_patches",
    "simulate_stack",
    "write_image",
]

#: Where the public names are found.
_HOMES = {
    "alignment": "Alignment align_stack aligned",
    "depth": "Depth estimate_depth",
    "errors": "CofuseError",
    "evaluation.simulation": "Simulation simulate_stack",
    "files": "Metadata read_image read_metadata read_stack write_image",
    "fusion": "PRESETS AutoSettings FastSettings PaperSettings fuse",
    "images": "Fusion Stack",
    "jobs.outputs": "Outcome",
    "jobs.run": "fuse_files",
    "learning": "LearnedOperator LearningSettings learn_operator sample_patches",
    "operators": "AnalysisOperator load_operator",
    "progress": "Progress SolverTrace",
    "sensor": "NoiseLaw estimate_noise",
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    """Load a public name's module at its first use."""
    if name not in _HOME_OF:
        raise AttributeError(f"module 'cofuse' has no attribute {name!r}")
    value = getattr(import_module(f"cofuse.{_HOME_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Offer the public names to completion."""
    return sorted(__all__)
