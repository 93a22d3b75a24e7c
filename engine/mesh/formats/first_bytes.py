"""Checks a file's first bytes before its reader runs: refuses unsupported content, and formats that differ from the suffix.

A reader would refuse such a file too, but its message would be about its own format, which does not help if the file is a web page.
"""

from __future__ import annotations

import re

from engine.errors import BadFile
from engine.mesh.formats.dialect import values
from engine.mesh.formats.source import Source
from engine.mesh.formats.text import SUFFIXES
from engine.mesh.formats.text_stream import encoding

PACKED = {
    b"\x1f\x8b": "gzip", b"BZh": "bzip2", b"\xfd7zXZ\0": "xz", b"\x28\xb5\x2f\xfd": "zstd", b"7z\xbc\xaf\x27\x1c": "7z",
    b"Rar!\x1a\x07": "rar", b"\x04\x22\x4d\x18": "lz4", b"\x1f\x9d": "compress",
}  # fmt: skip
ZIP = (b"PK\3\4", b"PK\5\6", b"PK\7\x08")
OTHER = {  # unsupported content, by its first bytes
    b"%PDF": "a PDF document", b"{\\rtf": "an RTF document",
    b"\x89PNG\r\n\x1a\n": "a PNG picture", b"\xff\xd8\xff": "a JPEG picture", b"GIF8": "a GIF picture",
    b"II*\0": "a TIFF picture", b"MM\0*": "a TIFF picture", b"v/1\x01": "an EXR picture", b"#?RADIANCE": "an HDR picture",
    b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1": "an old Office document", b"SQLite format 3\0": "an SQLite database",
    b"\x89HDF\r\n\x1a\n": "an HDF5 file",
    b"PAR1": "a Parquet table", b"ARROW1": "an Arrow table", b"MATLAB 5.0 MAT-file": "a MATLAB file", b"#ROSBAG": "a ROS bag",
    b"LASF": "a LAS or LAZ cloud", b"ASTM-E57": "an E57 scan", b"Kaydara FBX Binary": "an FBX scene", b"; FBX": "an FBX scene",
    b"PXR-USDC": "a USD scene", b"#usda": "a USD scene", b"BLENDER": "a Blender scene", b"DRACO": "a Draco mesh",
    b"ISO-10303-21": "a STEP model",
    b"#VRML": "a VRML scene", b"#X3D": "an X3D scene", b"# vtk DataFile": "a VTK file", b"AC10": "a DWG drawing", b"\x7fELF": "a program",
    b"-----BEGIN PGP": "a PGP message", b"DSAA": "a grid of Surfer", b"DSBB": "a grid of Surfer", b"DSRB": "a grid of Surfer",
    b"$MeshFormat": "a Gmsh mesh", b"MeshVersionFormatted": "a Medit mesh",
}  # fmt: skip
MARKUP = {  # XML formats by their elements
    "html": "a web page", "collada": "a COLLADA scene", "x3d": "an X3D scene", "svg": "an SVG picture", "vtkfile": "a VTK file",
    "kml": "a KML map", "gpx": "a GPX track", "error": "an error message of a web server",
}  # fmt: skip
WEB = (MARKUP["html"], MARKUP["error"])
INSTEAD = "give a mesh or a cloud, such as a PLY, GLB, OBJ, STL or XYZ file"
OBJ_WORDS = ("v", "vn", "vt", "f", "o", "g", "usemtl", "mtllib")


def check_first_bytes(source: Source, suffix: str) -> None:
    """Raises BadFile if a file's first bytes show an unsupported format, or a format that differs from its suffix."""
    head = source.head()
    if suffix == ".stl" and source.size == 84 + 50 * int.from_bytes(head[80:84], "little"):
        return  # the title of a binary STL may be anything
    name, mark = encoding(head)
    text = head[mark:].decode(name, "replace").strip("\ufeff")
    if not text.strip() and source.size <= len(head):
        raise BadFile(f"{source.name} is empty but for blanks; export it again.")
    if sentence := _foreign(head, text, suffix) or _gltf_version(head) or _wrong_suffix(head, text, suffix):
        raise BadFile(f"{source.name} {sentence}.")


def _foreign(head: bytes, text: str, suffix: str) -> str:
    """A sentence about unsupported content; "" for any other."""
    start = text.lstrip()
    low = start[:2_000].lower()
    if re.match(r"version https?://(git-lfs\.github\.com|hawser\.github\.com)/spec", low):
        return "is a pointer of Git LFS and not the file itself; fetch the file with 'git lfs pull', or download it from the web page"
    if "/annex/objects/" in low[:200]:
        return "is a pointer of git-annex and not the file itself; fetch the file with 'git annex get'"
    if packed := next((kind for magic, kind in PACKED.items() if head.startswith(magic)), ""):
        return f"is compressed by {packed}; unpack it and give the file in it"
    if head[257:262] == b"ustar":
        return "is a tar archive; unpack it and give a file in it"
    if kind := next((kind for magic, kind in OTHER.items() if head.startswith(magic)), "") or _picture(head):
        return f"is {kind}; {INSTEAD}"
    if low.startswith("<"):
        kind = _markup(low)
        return f"is {kind}; {'download the file itself' if kind in WEB else INSTEAD}"
    if low.startswith("{") and '"asset"' not in low and suffix not in (".gltf", ".glb"):
        return f"is a JSON text; {INSTEAD}"
    if re.match(r"ncols\s+\d+\s+nrows\s+\d+", low):
        return "is an ESRI ASCII grid, which holds heights and no points; save it as a table with x, y and z in every line"
    if re.match(r"version:\s*\d+\s+n_points:\s*\d+", low):
        return f"holds landmarks of a picture, which have no z; {INSTEAD}"
    return ""


def _picture(head: bytes) -> str:
    """The kind of a picture or film whose magic number is short or not at the beginning; "" for anything else."""
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "a WebP picture"
    if head[4:8] == b"ftyp":
        return "a HEIC picture" if head[8:11] in (b"hei", b"mif") else "an AVIF picture" if head[8:11] == b"avi" else "a film"
    return "a BMP picture" if head[:2] == b"BM" and head[6:10] == bytes(4) and b"\0" in head[2:6] else ""


def _markup(low: str) -> str:
    """The kind of a text that begins with an angle bracket."""
    words = re.findall(r"<(?:!doctype\s+)?([a-z][\w]*)", low)
    if "html" in words[:3] or words[:1] in (["head"], ["body"], ["script"]):
        return MARKUP["html"]
    return next((MARKUP[word] for word in words if word in MARKUP), "an XML text")


def _wrong_suffix(head: bytes, text: str, suffix: str) -> str:
    """A sentence about a readable format with another format's suffix; "" if they agree or the format is not recognised."""
    if head.startswith(ZIP):
        if suffix == ".npz":
            return ""
        if b".npy" in head[30:100]:
            return "is an archive of NumPy; rename it to .npz"
        return "is a ZIP archive (such as a zipped file, a spreadsheet or a 3MF model); unpack it, or export it in another format"
    right = _format(head, text, suffix)
    if right and suffix not in right[1]:
        return f"holds {right[0]}, whatever its name says; rename it to {right[1][0]}"
    return ""


def _format(head: bytes, text: str, suffix: str) -> tuple[str, tuple[str, ...]] | None:
    """The name and the suffixes of a readable format; None if it is not recognised."""
    lines = [line.strip() for line in re.split(r"[\r\n]+", text)]
    first = lines[0].lower() if lines else ""
    if first == "ply":
        return "a PLY file", (".ply",)
    if head.startswith(b"glTF"):
        return "a binary glTF", (".glb", ".gltf")
    if head.startswith(b"\x93NUMPY"):
        return "a NumPy array", (".npy",)
    if re.match(r"# \.pcd v|version \.?\d+(\.\d+)? *$", first) and "FIELDS" in text:
        return "a PCD cloud", (".pcd",)
    if re.match(r"(st)?c?n?4?off(\s|\d|$)", first) and "\0" not in text[:20]:
        return "an OFF mesh", (".off",)
    if first.startswith("solid") and re.search(r"\bfacet\s+normal\b", text, re.IGNORECASE):
        return "an STL mesh", (".stl",)
    if text.lstrip().startswith("{"):
        return "a glTF scene", (".gltf", ".glb")
    statements = [line.split() for line in lines[:-1] if line and not line.startswith(("#", "//"))]
    if statements and all(words[0] in OBJ_WORDS for words in statements[:3]) and len(statements[0]) > 1:
        return "an OBJ mesh", (".obj",)
    if (
        suffix in (".ply", ".obj", ".pcd", ".stl")
        and statements
        and all(len(values(" ".join(words)) or ()) > 2 for words in statements[:3])
    ):
        return "a table of numbers", SUFFIXES
    return None


def _gltf_version(head: bytes) -> str:
    """A sentence about a binary glTF of another version than 2; "" for any other file."""
    version = int.from_bytes(head[4:8], "little")
    if not head.startswith(b"glTF") or len(head) < 8 or version == 2:
        return ""
    return f"is a binary glTF of version {version}, and only 2 can be read; save it as glTF 2.0"
