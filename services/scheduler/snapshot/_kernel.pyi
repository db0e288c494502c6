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
