"""Pictures of meshes and clouds without a display, for contact sheets, thumbnails and the command line; never live.

pyvista needs EGL or an X server and is not safe in threads, so `pictures` draws in a separate process. If the graphics library
is missing and crashes that process, the caller gets an error message instead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from engine.errors import NotSupported
from engine.sandbox import Died, TookTooLong, run_sandboxed

SIZE = 384  # pixels of a square picture
PATIENCE = 120.0  # seconds for all pictures of a call, including the import of the library
LAST = 10  # niceness of drawing in the background: runs and uploads go first, but it still gets a tenth of a busy core
TOP, BOTTOM = "#fbfbfa", "#e3e5e8"  # background colours
SKIN, EDGE, DOT = "#c9d3e0", "#465061", "#3d6597"
LIGHTS = [((1.0, 3.0, 1.4), 0.9), ((-1.6, 0.8, 2.0), 0.5), ((3.0, 0.2, -0.6), 0.3)]  # positions and strengths: key, fill, rim
EYE = np.array([1.05, 0.75, 1.45])  # three-quarter view from the right, above and in front
ANGLE = 26.0  # angle of view, degrees
RADIUS = 1.62  # radius of the ball that fills the picture: a whole cube just fits


@dataclass(frozen=True)
class View:
    """One picture: a mesh if there are faces, else a cloud, in the model's frame.

    vertices : [V, 3], or points [N, 3 or more]
    faces    : [F, 3] or None
    colours  : uint8 [F, 3] or None
    title    : shown below it in a contact sheet
    """

    vertices: np.ndarray
    faces: np.ndarray | None = None
    colours: np.ndarray | None = None
    title: str = ""


def draw(views: Sequence[View], size: int = SIZE) -> list[np.ndarray]:
    """Pictures uint8 [size, size, 3] of views, drawn in this process and thread with the same camera."""
    import pyvista  # slow to import, and needs a graphics library that not every machine has

    pyvista.OFF_SCREEN = True
    pyvista.vtk_verbosity("off")  # prevents a warning on the terminal that there is no display
    plotter = pyvista.Plotter(off_screen=True, window_size=(size, size), lighting="none")
    for place, strength in LIGHTS:
        plotter.add_light(pyvista.Light(position=place, intensity=strength, light_type="scene light"))
    plotter.set_background(BOTTOM, top=TOP)
    plotter.enable_anti_aliasing("ssaa")
    eye = EYE / np.linalg.norm(EYE) * RADIUS / np.sin(np.radians(ANGLE / 2))
    plotter.camera_position = [tuple(eye), (0, 0, 0), (0, 1, 0)]
    plotter.camera.view_angle = ANGLE
    images = []
    for view in views:
        if view.faces is not None and len(view.faces):
            faces = np.concatenate([np.full((len(view.faces), 1), 3), view.faces], 1)
            shape = pyvista.PolyData(np.asarray(view.vertices, np.float32), faces.reshape(-1))
            if view.colours is not None:
                shape.cell_data["colour"] = np.asarray(view.colours[:, :3], np.uint8)
            look = {"scalars": "colour", "rgb": True} if view.colours is not None else {"color": SKIN}
            actor = plotter.add_mesh(
                shape, **look, show_edges=True, edge_color=EDGE, line_width=1, ambient=0.28, diffuse=0.8, specular=0.0,
                smooth_shading=False, reset_camera=False, copy_mesh=False,
            )  # fmt: skip
        elif len(view.vertices):
            shape = pyvista.PolyData(np.asarray(view.vertices[:, :3], np.float32))
            actor = plotter.add_points(
                shape, color=DOT, point_size=max(2.0, size / 90), render_points_as_spheres=True, lighting=False, reset_camera=False
            )
        else:
            actor = None
        plotter.reset_camera_clipping_range()
        plotter.render()
        picture = np.asarray(plotter.screenshot(return_img=True))
        if actor is not None:
            if picture.std() < 1:  # some drivers leave the first picture empty
                plotter.render()
                picture = np.asarray(plotter.screenshot(return_img=True))
            plotter.remove_actor(actor, reset_camera=False)
        images.append(np.ascontiguousarray(picture[:, :, :3], np.uint8))
    plotter.close()
    return images


def pictures(
    views: Sequence[View], size: int = SIZE, patience: float = PATIENCE, behind: bool = False, wanted: Callable[[], bool] | None = None
) -> list[np.ndarray]:
    """Same as `draw`, but in a separate process; raises NotSupported if nothing can be drawn.

    behind : run at the lowest priority; wanted : once it returns False, raises Unwanted
    """
    try:
        return run_sandboxed(draw, list(views), size, seconds=patience, nice=LAST if behind else 0, wanted=wanted)
    except TookTooLong as e:
        raise NotSupported(f"Drawing meshes took longer than {patience:.0f} seconds. Draw fewer or smaller pictures.") from e
    except (Died, ImportError, OSError) as e:
        raise NotSupported("This machine cannot draw meshes off screen. Install libegl1, libgl1 and libgl1-mesa-dri.") from e


def sheet(rows: Sequence[Sequence[np.ndarray]], titles: Sequence[Sequence[str]] = (), gap: int = 4) -> np.ndarray:
    """Pictures of one size as a table, uint8 [H, W, 3], with a line of text below each picture that has a title."""
    size = rows[0][0].shape[0]
    line = max(14, size // 18)
    below = line + 8 if any(map(any, titles)) else 0
    columns = max(map(len, rows))
    table = Image.new("RGB", (columns * (size + gap) + gap, len(rows) * (size + below + gap) + gap), "white")
    pen = ImageDraw.Draw(table)
    font = ImageFont.load_default(line)
    for r, row in enumerate(rows):
        for c, picture in enumerate(row):
            x, y = gap + c * (size + gap), gap + r * (size + below + gap)
            table.paste(Image.fromarray(picture), (x, y))
            if below and r < len(titles) and c < len(titles[r]):
                pen.text((x + size / 2, y + size + below / 2), titles[r][c], fill=EDGE, font=font, anchor="mm")
    return np.asarray(table)
