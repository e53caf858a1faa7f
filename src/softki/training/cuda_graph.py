"""Training steps as one CUDA graph: exact gradient and Adam, with nothing read back.

A step is two hundred small kernels, which take longer to launch than to run. They are captured once
and replayed. A step whose factorisation fails or whose gradient is not finite leaves the
parameters as they are, and is done again outside the graph, with whatever fallback there is, after
the other steps of its stretch. Where nothing can be captured, every step is done outside.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import torch
from torch import Tensor

from softki.batches import Batch, Data
from softki.interpolation.backends import Backend, PlainBackend, why_plain
from softki.kernels.stationary import KERNELS
from softki.linalg.cuda import side_stream
from softki.model import SoftKI
from softki.objective.exact import backward, exact
from softki.training.data import TrainingData

# Steps outside the graph before it is captured: libraries set themselves up, Adam its state.
_WARM_UP = 3


def why_not(
    model: SoftKI, data: TrainingData, objective: object, is_one_batch: bool, backend: type[Backend]
) -> str | None:
    """Why steps on such data, each on one batch or not, cannot be captured; None if they can."""
    if backend is PlainBackend:
        return why_plain(data.inputs, len(model.points)) or "the plain backend was asked for"
    if objective not in ("stabilised", "exact"):
        return "the objective is not the exact one"
    if type(model.kernel) not in KERNELS.values():  # others may wait for the host
        return "the kernel is not one of softki's"
    if data.knows_noise:
        return "the noise of the rows is known"
    if data.processes.are_several:
        return "several processes share the rows"
    if not is_one_batch:
        return "a step has several batches, or all rows of a stream"
    return None


class StepRows(Protocol):
    """The rows of a step, always as many and in the same place."""

    @property
    def batches(self) -> Sequence[Batch]:
        """One batch; to take it is part of the graph."""

    def load(self, step: int) -> None:
        """Let it be the rows of that step, counted from 0."""


class IndexedRows:
    """Rows of a table on the device, by their index.

    Args:
        data: all rows.
        index: of the rows of a step, counted from 0.
    """

    def __init__(self, data: Data, index: Callable[[int], Tensor]) -> None:
        self._index_of, self._index = index, index(0).clone()
        self.batches = data.batch(self._index)

    def load(self, step: int) -> None:
        """Let the index be that of the step."""
        self._index.copy_(self._index_of(step))


class CopiedRows:
    """Rows that come one batch after the other.

    Args:
        place: that the rows of every step are copied to.
        batch: the rows of a step, counted from 0.
    """

    def __init__(self, place: Batch, batch: Callable[[int], Batch]) -> None:
        self._batch_of, self.batches = batch, [place]

    def load(self, step: int) -> None:
        """Copy the rows of the step to the place of all."""
        rows = self._batch_of(step)
        self.batches[0].x.copy_(rows.x)
        self.batches[0].y.copy_(rows.y)


class GraphSteps:
    """Training steps by replays of a graph.

    Args:
        model: to train in place.
        rows: of the steps, on a CUDA device.
        optimizer: Adam, `fused` and `capturable`.
        set_rate: sets the learning rate of a step, counted from 1.
        longest: the most steps of a call of `run`.

    Attributes:
        trouble: why the steps could not be captured, if they could not.
    """

    def __init__(
        self,
        model: SoftKI,
        rows: StepRows,
        optimizer: torch.optim.Adam,
        set_rate: Callable[[int], None],
        longest: int,
    ) -> None:
        self._model, self._rows, self._optimizer = model, rows, optimizer
        self._set_rate = set_rate
        self._graph: torch.cuda.CUDAGraph | None = None
        self._first: int | None = None  # 1, or where a training was resumed
        device = model.points.device
        self._slot = torch.zeros(1, dtype=torch.long, device=device)
        self._outcomes = torch.zeros(longest, 2, dtype=torch.float64, device=device)
        self.trouble: str | None = None

    def run(self, steps: range) -> Iterator[tuple[int, float | None]]:
        """Do these steps; then yield each with its log likelihood, or None where it failed."""
        if self._first is None:
            self._first = steps.start
        if self._graph is None:
            left = max(0, self._first + _WARM_UP - steps.start)
            yield from ((step, None) for step in steps[:left])
            steps = steps[left:]
        if self._graph is None and self.trouble is None and len(steps):
            self._capture()
        if self._graph is None:
            yield from ((step, None) for step in steps)
            return
        self._slot.zero_()
        for step in steps:
            self._rows.load(step - 1)
            self._set_rate(step)
            self._graph.replay()
        for step, (log_likelihood, failed) in zip(
            steps, self._outcomes[: len(steps)].tolist(), strict=True
        ):
            yield step, None if failed else log_likelihood

    def _capture(self) -> None:
        self._optimizer.zero_grad()
        graph = torch.cuda.CUDAGraph()
        try:
            # Rows of a stream are prepared in another thread, which may take memory meanwhile.
            capture = torch.cuda.graph(graph, capture_error_mode="thread_local")
            with warnings.catch_warnings(), capture:
                # Parameters are used on several streams, which are joined before the gradients.
                warnings.filterwarnings("ignore", "The AccumulateGrad node's stream")
                warnings.filterwarnings("ignore", "The CUDA Graph is empty")  # after an error
                self._step()
        except RuntimeError as error:
            self.trouble = f"it could not be captured ({(str(error).splitlines() or [''])[0]})"
            return
        self._graph = graph

    def _step(self) -> None:
        adjoint = backward(self._model, self._rows.batches, exact)
        log_likelihood = adjoint.log_likelihood()
        assert log_likelihood is not None
        gradients = [p.grad.reshape(-1) for p in self._model.parameters() if p.grad is not None]
        failed = (0 * torch.cat(gradients).sum()).ne(0).float()  # NaN is not 0
        with side_stream(self._slot.device) as join:
            outcome = torch.stack([log_likelihood, failed.double()])
            self._outcomes.index_copy_(0, self._slot, outcome[None])
            self._slot += 1
        self._optimizer.found_inf = failed  # type: ignore[attr-defined]
        try:
            self._optimizer.step()
        finally:  # it belongs to the graph, and steps outside must not see it
            del self._optimizer.found_inf  # type: ignore[attr-defined]
        join()
