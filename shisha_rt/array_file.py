"""Arrays from .npy and .npz files that a user names: read, or refused in one line. Shell."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from shisha_rt.errors import BadInput, Error

Array: TypeAlias = NDArray[Any]
Content: TypeAlias = Array | Mapping[str, Array]
"""Of a .npy file, or of an .npz file by name."""

_EXPECTED: Final = "a .npy file of one array, or an .npz file of named ones, without pickled objects"
_NPY_MAGIC: Final = b"\x93NUMPY"


def read_arrays(path: Path) -> Content:
    """The array of a .npy file, or those of an .npz file by name. Raises BadInput."""
    try:
        with path.open("rb") as file:
            is_single = file.read(len(_NPY_MAGIC)) == _NPY_MAGIC
            file.seek(0)
            # allow_pickle=False: nothing that a file holds is ever run.
            if is_single:
                single: Array = np.load(path, mmap_mode="r", allow_pickle=False)  # may be larger than memory
                return single
            with np.load(file, allow_pickle=False) as archive:
                return {name: archive[name] for name in archive.files}
    except OSError as error:
        raise BadInput(
            f"{path}: cannot be read ({error.strerror or error}), expected {_EXPECTED}", Error.UNREADABLE_FILE
        ) from None
    except Exception:  # numpy, zipfile and what they decompress with raise whatever damage leads them to
        raise BadInput(f"{path}: no arrays that can be read, expected {_EXPECTED}", Error.WRONG_FRAMES) from None
