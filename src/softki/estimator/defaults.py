"""How large a fit is where the user does not say: by rows, device, and what pays.

More points, and more rows a step, are more accurate where there are rows enough for them, and
overfit sooner where there are not. A GPU takes them at little cost: there, larger sizes are
tried after smaller ones, as long as held-out rows improve (`softki.training.fit.fit`). Where rows
are few, one of fewer points with longer lengthscales is tried instead, which suits smooth functions
of many columns.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from softki.kernels.stationary import MAX_LENGTHSCALE

# A size needs so many rows for each of its points, the first one apart.
_ROWS_PER_POINT = 8


@dataclass(frozen=True)
class Size:
    """Points, rows a step, steps, and the cap on lengthscales (see `FitSettings`)."""

    points: int
    batch_size: int | None
    steps: int
    max_lengthscale: float = MAX_LENGTHSCALE

    def within(self, rows: int) -> Size:
        """This size for few rows: no more points than a quarter of them, one step a row."""
        return replace(
            self, points=min(self.points, max(1, rows // 4)), steps=min(self.steps, max(50, rows))
        )


_ON_CUDA = (Size(512, 1024, 1200), Size(2048, 4096, 1200), Size(4096, 8192, 1600))
_ON_CPU = (Size(512, 1024, 600), Size(512, 2048, 800))
_MANY_ROWS_ON_CPU = 20_000
# Few rows show no more than a smooth function.
FEW_ROWS = 1000
_SMOOTH = Size(256, 4096, 1200, max_lengthscale=5.0)
# Below so many rows it is tried; a CPU, on which it takes as long as the other, has less time.
_SMOOTH_ROWS = {True: _ROWS_PER_POINT * _ON_CUDA[1].points, False: 6000}


def sizes_for(rows: int, on_cuda: bool) -> list[Size]:
    """The sizes to try, in this order.

    Example:
        >>> sizes_for(15_000, on_cuda=False)
        [Size(points=512, batch_size=1024, steps=600, max_lengthscale=3.0)]
        >>> [size.points for size in sizes_for(1_000_000, on_cuda=True)]
        [512, 2048, 4096]
    """
    if on_cuda:
        first, *larger = _ON_CUDA
        sizes = [first, *(size for size in larger if rows >= _ROWS_PER_POINT * size.points)]
    else:
        sizes = [_ON_CPU[rows >= _MANY_ROWS_ON_CPU]]
    if rows <= FEW_ROWS:
        sizes = [replace(sizes[0], max_lengthscale=_SMOOTH.max_lengthscale)]
    elif rows < _SMOOTH_ROWS[on_cuda]:
        sizes.append(_SMOOTH if on_cuda else replace(_SMOOTH, steps=_ON_CPU[0].steps))
    return [size.within(rows) for size in sizes]
