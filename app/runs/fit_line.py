"""The line about how well a finished mesh fits its input, for the command line and the page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine.backbones.lowpoly import Mesh
from engine.core import Backbone
from engine.errors import MissingWeights
from engine.mesh.read import Input
from engine.recognition import fit, kind


def fit_of(backbone: Backbone, given: Input, mesh: Mesh, apart: Mapping[str, Any]) -> tuple[fit.Fit | None, str]:
    """The fit of a mesh (None: it has no face, or the fit is not known), and why it is not known ("" if it is).

    apart : the distance of the mesh to `given.reference`
    """
    try:
        return fit.judged(fit.shipped(), kind.shipped(), backbone, given.points, (mesh.vertices, mesh.faces), apart), ""
    except MissingWeights as e:
        return None, str(e)
