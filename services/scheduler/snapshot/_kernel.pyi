import numpy as np
import numpy.typing as npt

INTERFACE: int

def room_scores(
    free: npt.NDArray[np.int64],
    whole: npt.NDArray[np.float64],
    positions: npt.NDArray[np.int64],
    request: npt.NDArray[np.int64],
    pair_rows: npt.NDArray[np.int64],
    amounts: npt.NDArray[np.float64],
    pair_of: npt.NDArray[np.int64],
    weights: npt.NDArray[np.float64],
    levels: npt.NDArray[np.float64],
    scores: npt.NDArray[np.int64],
    lost_anywhere: float,
    lost_besides: npt.NDArray[np.float64] | None,
    /,
) -> None: ...
def zone_bounds(
    free_min: npt.NDArray[np.int64],
    free_max: npt.NDArray[np.int64],
    slots: npt.NDArray[np.int64],
    least: npt.NDArray[np.int64],
    together: npt.NDArray[np.int64],
    smallest: npt.NDArray[np.int64],
    landing: npt.NDArray[np.int64],
    candidates: npt.NDArray[np.bool_],
    sure: npt.NDArray[np.bool_],
    fits: npt.NDArray[np.bool_] | None,
    zones: int,
    running: int,
    has_rows: bool,
    decides: bool,
    /,
) -> None: ...
